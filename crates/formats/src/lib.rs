//! GGUF and safetensors: bytes to a manifest with byte ranges. Parses and validates, does no IO.
