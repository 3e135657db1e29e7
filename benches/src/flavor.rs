//! The two runtimes of tokio.

use tokio::runtime::{Builder, Runtime};

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Flavor {
    CurrentThread,
    MultiThread,
}

impl Flavor {
    pub const ALL: [Self; 2] = [Self::CurrentThread, Self::MultiThread];

    pub fn name(self) -> &'static str {
        match self {
            Self::CurrentThread => "current_thread",
            Self::MultiThread => "multi_thread",
        }
    }

    pub fn named(name: &str) -> Self {
        Self::ALL.into_iter().find(|flavor| flavor.name() == name).expect("the name of a flavor")
    }

    pub fn runtime(self) -> Runtime {
        let mut builder = match self {
            Self::CurrentThread => Builder::new_current_thread(),
            Self::MultiThread => Builder::new_multi_thread(),
        };
        builder.enable_all().build().expect("a runtime")
    }
}
