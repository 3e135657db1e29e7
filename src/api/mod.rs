//! What a program begins with: the client, and the owners of nested sections.

pub(crate) mod client;
pub(crate) mod owner;
