//! Certificates for servers and clients, made with the program `openssl`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// A certificate authority, and a certificate of a server and of a client that it signed.
#[derive(Debug)]
pub struct Certificates(PathBuf);

impl Certificates {
    /// Makes all certificates. That of the server is for the address 127.0.0.1.
    #[expect(clippy::new_without_default, reason = "each call makes other certificates")]
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir =
            std::env::temp_dir().join(format!("lockkeeper-certificates-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory for certificates");
        let all = Self(dir);
        std::fs::write(all.path("config"), "[req]\ndistinguished_name = dn\n[dn]\n").expect("a file");
        all.make("ca", &["-addext", "basicConstraints=critical,CA:TRUE"]);
        let (authority, key) = (all.text_path("ca.crt"), all.text_path("ca.key"));
        for name in ["server", "client"] {
            all.make(name, &["-CA", &authority, "-CAkey", &key, "-addext", "subjectAltName=IP:127.0.0.1"]);
        }
        all
    }

    /// The arguments of a server that speaks TLS on this port, and with other servers. `asks`: it accepts only clients with a
    /// certificate.
    pub(crate) fn server_args(&self, port: u16, asks: bool) -> Vec<String> {
        let files = ["ca.crt", "server.crt", "server.key"].map(|file| self.text_path(file));
        let asks = if asks { "yes" } else { "no" };
        let args =
            ["--tls-port", &port.to_string(), "--tls-auth-clients", asks, "--tls-ca-cert-file", &files[0]];
        let more = ["--tls-cert-file", &files[1], "--tls-key-file", &files[2]];
        let others = ["--tls-replication", "yes", "--tls-cluster", "yes"];
        args.iter().chain(&more).chain(&others).map(|arg| (*arg).to_owned()).collect()
    }

    /// The content of a file: `ca.crt`, `client.crt` or `client.key`.
    pub fn read(&self, file: &str) -> Vec<u8> {
        std::fs::read(self.path(file)).expect("a certificate")
    }

    fn make(&self, name: &str, args: &[&str]) {
        let (key, certificate) =
            (self.text_path(&format!("{name}.key")), self.text_path(&format!("{name}.crt")));
        let status = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"])
            .args([
                "-days",
                "2",
                "-subj",
                &format!("/CN=lockkeeper {name}"),
                "-config",
                &self.text_path("config"),
            ])
            .args(["-keyout", &key, "-out", &certificate])
            .args(args)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .expect("openssl can be run");
        assert!(status.success(), "openssl made no certificate {name}");
    }

    /// The path of a file.
    pub fn path(&self, file: &str) -> PathBuf {
        Path::new(&self.0).join(file)
    }

    pub(crate) fn text_path(&self, file: &str) -> String {
        self.path(file).to_str().expect("a path of text").to_owned()
    }
}

impl Drop for Certificates {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
