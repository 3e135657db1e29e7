//! The slots of Redis Cluster: which keys are on one server together.
//!
//! <https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/>

/// The number of slots of a cluster.
const SLOTS: u16 = 16_384;

/// Returns the slot of a key or of a channel.
pub(crate) fn slot(key: &str) -> u16 {
    crc16(hashed_part(key).as_bytes()) % SLOTS
}

/// Returns the part of a key that decides on its slot: what is between the first `{` and the next `}`. If there is no such part,
/// or if it is empty, returns the whole key.
pub(super) fn hashed_part(key: &str) -> &str {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
    tag.map(|(tag, _)| tag).filter(|tag| !tag.is_empty()).unwrap_or(key)
}

/// CRC-16/XMODEM: polynomial `0x1021`, initial value 0, nothing reflected. Computes a byte at a time, without a table.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc: u16, byte| {
        let mut mixed = (crc >> 8) ^ u16::from(*byte);
        mixed ^= mixed >> 4;
        (crc << 8) ^ (mixed << 12) ^ (mixed << 5) ^ mixed
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What `CLUSTER KEYSLOT` of Redis 7.0 replies.
    const SLOTS_OF_REDIS: &[(&str, u16)] = &[
        ("foo", 12_182),
        ("bar", 5061),
        ("", 0),
        ("a", 15_495),
        ("ключ", 10_303),
        ("{user1000}.following", 3443),
        ("user1000", 3443),
        ("123456789", 12_739),
        ("foo{}{bar}", 8363),
        ("foo{{bar}}zap", 4015),
        ("foo{bar}{zap}", 5061),
        ("{}x", 10_595),
        ("a{}b", 13_694),
        ("}{", 12_793),
        ("a{b", 13_340),
        ("a}b", 7866),
        ("redisson_lock__channel:{a}", 15_495),
    ];

    #[test]
    fn slots_equal_those_of_a_server() {
        for (key, expected) in SLOTS_OF_REDIS {
            assert_eq!(slot(key), *expected, "{key}");
        }
    }

    #[test]
    fn the_tag_is_between_the_first_brace_and_the_next_that_closes() {
        for (key, part) in [
            ("{user1000}.following", "user1000"),
            ("foo{}{bar}", "foo{}{bar}"),
            ("foo{{bar}}zap", "{bar"),
            ("foo{bar}{zap}", "bar"),
            ("{}x", "{}x"),
            ("a{}b", "a{}b"),
            ("}{", "}{"),
            ("a{b", "a{b"),
            ("a}b", "a}b"),
            ("}{a}", "a"),
            ("", ""),
        ] {
            assert_eq!(hashed_part(key), part, "{key}");
        }
    }

    /// One bit at a time, as the polynomial is defined.
    fn crc16_by_bits(bytes: &[u8]) -> u16 {
        let mut crc = 0;
        for byte in bytes {
            crc ^= u16::from(*byte) << 8;
            for _ in 0..8 {
                crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
            }
        }
        crc
    }

    /// The rule as the specification states it: by the positions of the braces.
    fn hashed_part_by_position(key: &str) -> &str {
        let Some(open) = key.find('{') else { return key };
        match key[open + 1..].find('}') {
            Some(len) if len > 0 => &key[open + 1..open + 1 + len],
            _ => key,
        }
    }

    proptest! {
        #[test]
        fn the_fast_checksum_equals_that_by_bits(bytes: Vec<u8>) {
            prop_assert_eq!(crc16(&bytes), crc16_by_bits(&bytes));
        }

        #[test]
        fn the_tag_follows_the_specification(key in "[{}a-c:]{0,12}") {
            prop_assert_eq!(hashed_part(&key), hashed_part_by_position(&key));
            prop_assert!(slot(&key) < SLOTS);
        }

        #[test]
        fn keys_with_one_tag_are_in_one_slot(tag in "[^{}]{1,20}", before in "[^{]{0,9}", after in ".{0,9}") {
            let key = format!("{before}{{{tag}}}{after}");
            prop_assert_eq!(slot(&key), slot(&tag));
        }
    }
}
