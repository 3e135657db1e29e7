//! A network with faults.

use lockkeeper_testkit::{Faults, Proxy};
use tokio::runtime::Runtime;

use super::scene::Scene;

/// A network between the first contender and the server.
pub(crate) struct Network {
    pub(crate) proxy: Proxy,
    /// Moves the bytes.
    _runtime: Runtime,
}

impl Network {
    pub(crate) fn to(scene: &Scene) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        Self { proxy: runtime.block_on(Proxy::to(scene.server.port())), _runtime: runtime }
    }

    pub(crate) fn black_hole(&self) {
        self.proxy.set(Faults::black_hole());
    }

    pub(crate) fn cut(&self) {
        self.proxy.refuse(true);
        self.proxy.cut();
    }
}
