//! A value in a configuration file.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::base::error::ConfigError;

/// A scalar of any type in a file, as text.
#[derive(Clone, Debug)]
pub(crate) struct Text(String);

impl Text {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub(crate) fn into_string(self) -> String {
        self.0
    }

    pub(crate) fn duration(self, field: &'static str) -> Result<Duration, ConfigError> {
        let Self(text) = self;
        humantime::parse_duration(&text).map_err(|error| {
            ConfigError::new(field, format!("`{text}` is not a duration such as `30s`: {error}"))
        })
    }

    pub(crate) fn switch(self, field: &'static str) -> Result<bool, ConfigError> {
        let Self(text) = self;
        text.parse().map_err(|_| ConfigError::new(field, format!("must be `true` or `false`, not `{text}`")))
    }

    pub(crate) fn number<T: FromStr<Err = ParseIntError>>(
        self,
        field: &'static str,
    ) -> Result<T, ConfigError> {
        let Self(text) = self;
        text.parse().map_err(|error: ParseIntError| {
            ConfigError::new(field, format!("`{text}` is not a number: {error}"))
        })
    }
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Scalar;

        macro_rules! accept {
            ($($method:ident($type:ty))*) => {
                $(fn $method<E: de::Error>(self, value: $type) -> Result<Text, E> {
                    Ok(Text(value.to_string()))
                })*
            };
        }

        impl Visitor<'_> for Scalar {
            type Value = Text;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration such as \"30s\"")
            }

            accept! { visit_str(&str) visit_u64(u64) visit_i64(i64) visit_f64(f64) visit_bool(bool) }
        }

        deserializer.deserialize_any(Scalar)
    }
}
