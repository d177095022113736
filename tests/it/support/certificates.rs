//! A certificate authority of the test's own, and a certificate for whatever host name a client asks for.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, KeyUsagePurpose};
use rustls::ServerConfig;
use rustls::crypto::ring::{default_provider, sign::any_supported_type};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

#[derive(Debug)]
pub struct Certificates {
    pem: String,
    server: Arc<ServerConfig>,
}

impl Certificates {
    pub fn new() -> Arc<Certificates> {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().expect("a key");
        let authority = CertifiedIssuer::self_signed(params, key).expect("a certificate authority");
        let pem = authority.pem();
        let server = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .expect("TLS 1.2 and 1.3")
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(ByName { authority, made: Mutex::default() }));
        Arc::new(Certificates { pem, server: Arc::new(server) })
    }

    /// What a client must trust.
    pub fn ca_pem(&self) -> &str {
        &self.pem
    }

    pub fn server(&self) -> Arc<ServerConfig> {
        self.server.clone()
    }
}

struct ByName {
    authority: CertifiedIssuer<'static, KeyPair>,
    made: Mutex<HashMap<String, Arc<CertifiedKey>>>,
}

impl std::fmt::Debug for ByName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ByName")
    }
}

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        // A client that asks for an address names no host.
        let name = hello.server_name().unwrap_or("127.0.0.1").to_string();
        let mut made = self.made.lock().unwrap();
        let certificate = made.entry(name.clone()).or_insert_with(|| {
            let key = KeyPair::generate().expect("a key");
            let params = CertificateParams::new(vec![name]).expect("a host name");
            let certificate = params.signed_by(&key, &self.authority).expect("a certificate");
            let secret = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
            Arc::new(CertifiedKey::new(
                vec![certificate.der().clone()],
                any_supported_type(&secret).expect("a signing key"),
            ))
        });
        Some(certificate.clone())
    }
}
