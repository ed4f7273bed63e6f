//! The ingle command.
