//! What a program begins with: the client, and the owners of nested sections.

pub(crate) mod client;
pub(crate) mod list_parts;
pub(crate) mod owner;
