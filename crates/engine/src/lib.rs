//! Sessions, KV cache, sampling and scheduling: token ids in, token ids out.
