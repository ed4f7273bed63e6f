//! Tokenizers, the streaming decoder and chat templates.
