//! TLS by certificate and key files, which are read again when they change.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::followed::{Follow, Followed};

/// A server's certificate and key, as they are now. Clones share them.
#[derive(Debug, Clone)]
pub struct Tls(Followed<Arc<ServerConfig>>);

/// What is wrong with certificate or key.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file can't be read, or holds no PEM of the kind.
    #[error("{}: no {what} can be read: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What was looked for.
        what: &'static str,
        /// Why.
        source: pem::Error,
    },
    /// There is no certificate in the file.
    #[error("{}: no certificate in it; it should hold the server's first, then those that signed it, as PEM", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// They don't go together, or their kind is unknown.
    #[error("{} and {} can't be used: {source}", certificate.display(), key.display())]
    Refused {
        /// The file of the certificates.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// Why.
        source: rustls::Error,
    },
}

impl Tls {
    /// Reads PEM files: the server's certificate followed by those that signed
    /// it, and its private key (PKCS#8, PKCS#1 or SEC1, without a passphrase).
    /// They are looked at each second as long as the current runtime lasts; what
    /// can't be used then is logged, and the last good ones serve on.
    ///
    /// # Errors
    /// They can't be used now.
    pub fn follow(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let (of_certificate, of_key) = (certificate.to_owned(), key.to_owned());
        let follow = Follow {
            event: "tls_certificate",
            files: vec![certificate.to_owned(), key.to_owned()],
        };
        let followed = follow.begin(move || read(&of_certificate, &of_key).map(Arc::new))?;
        Ok(Tls(followed))
    }

    /// For the next connection.
    pub(super) fn current(&self) -> Arc<ServerConfig> {
        self.0.current()
    }
}

fn read(certificate: &Path, key: &Path) -> Result<ServerConfig, TlsError> {
    let refused = |path: &Path, what| {
        let path = path.to_owned();
        move |source| TlsError::Read { path, what, source }
    };
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(refused(certificate, "certificate"))?;
    if chain.is_empty() {
        return Err(TlsError::Empty {
            path: certificate.to_owned(),
        });
    }
    let private = PrivateKeyDer::from_pem_file(key).map_err(refused(key, "private key"))?;
    // Named, since a process may hold several and then has no default.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| {
            builder
                .with_no_client_auth()
                .with_single_cert(chain, private)
        })
        .map_err(|source| TlsError::Refused {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            source,
        })?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}
