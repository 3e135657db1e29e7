//! The id of a client.

use uuid::{Builder, Uuid};

/// Makes the id of a client whose connections have names. In a simulation it follows from the seed.
///
/// The version says that the connections have names: Redisson draws ids of version 4.
pub(crate) fn new() -> Uuid {
    #[cfg(feature = "unstable-simulation")]
    if crate::base::process::current().is_some() {
        return Builder::from_custom_bytes(fastrand::u128(..).to_be_bytes()).into_uuid();
    }
    Builder::from_custom_bytes(Uuid::new_v4().into_bytes()).into_uuid()
}

/// The id of the same client, if the server refused to name its connections.
pub(crate) fn without_name(id: Uuid) -> Uuid {
    Builder::from_random_bytes(id.into_bytes()).into_uuid()
}

/// Returns whether the connections of the client with this id have names. The version in the id says so. The first half
/// of the id has the version, and is all that a permit tells.
pub(crate) fn has_name(id: &str) -> bool {
    const OTHER_HALF: &str = "-8000-000000000000";
    let whole = if id.len() == OTHER_HALF.len() { [id, OTHER_HALF].concat() } else { id.to_owned() };
    Uuid::try_parse(&whole)
        .is_ok_and(|id| id.get_version_num() == 8 && id.get_variant() == uuid::Variant::RFC4122)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_tells_whether_the_connections_have_names() {
        let id = new();
        assert!(has_name(&id.to_string()) && !has_name(&without_name(id).to_string()));
        assert!(has_name(&id.to_string()[..18]) && !has_name(&without_name(id).to_string()[..18]));
        for other in [
            "8743c9c0-0795-4907-87fd-6c719a6b4586",
            "8743c9c0-0795-4907",
            "8743c9c0-0795-89",
            "8743c9c00795890787",
            "0-0-0-0-a",
            "",
            "00000000-0000-8000-0000-000000000000",
        ] {
            assert!(!has_name(other), "{other}");
        }
    }
}
