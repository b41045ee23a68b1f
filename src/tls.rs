//! TLS as a client has it: whom it trusts, who it says it is, and what went wrong in words.
//!
//! One place for load, readiness and knobs, so that all meet the same service. Every
//! connection begins with a whole handshake: users that are new to a service have no session
//! to take up again, and a measurement must not flatter it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore,
    SignatureScheme,
};

/// What a user says of TLS.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsSettings {
    /// Certificates that are trusted in the place of the host's own.
    pub ca: Option<PathBuf>,
    /// Our own certificate, where the service asks for one, and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Whether any certificate will do.
    pub insecure: bool,
    /// The name that the certificate is for, where it is not the target's.
    pub server_name: Option<String>,
}

/// What stands between us and a service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wire {
    /// `None` where nothing is encrypted.
    pub tls: Option<TlsClient>,
    /// Whether HTTP/2 is spoken, and nothing else; else HTTP/1.1.
    pub http2: bool,
}

impl Wire {
    /// `http` or `https`.
    pub fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// Which client the generator uses over it, in words.
    pub fn client(&self) -> &'static str {
        match (&self.tls, self.http2) {
            (None, false) => "own HTTP/1.1",
            (Some(_), false) => "own HTTP/1.1 over TLS",
            (None, true) => "HTTP/2 by hyper",
            (Some(_), true) => "HTTP/2 by hyper over TLS",
        }
    }
}

/// Why there can be no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file is missing, or is not what it should be.
    #[error("read {what} from {}", .path.display())]
    File {
        /// What it should hold.
        what: &'static str,
        /// Which file.
        path: PathBuf,
        /// Why it cannot be used.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The host trusts nobody.
    #[error("this host has no certificates of authorities to trust{}", .0)]
    NobodyTrusted(String),
    /// Certificate and key do not go together.
    #[error("the certificate and its key cannot be used")]
    Identity(#[source] rustls::Error),
    /// A name no certificate can be for.
    #[error("`{0}` is no name that a certificate can be for")]
    Name(String),
    /// The versions of TLS are not there.
    #[error("set TLS up")]
    Versions(#[source] rustls::Error),
}

impl TlsError {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::File { .. } | Self::Identity(_) => {
                "give PEM files: a certificate begins with -----BEGIN CERTIFICATE-----"
            }
            Self::NobodyTrusted(_) => {
                "name the authority that signed the service's certificate (ca), or take any (insecure)"
            }
            Self::Name(_) => "give the name that the certificate is for (server_name)",
            Self::Versions(_) => "this is a bug in nightsweep",
        }
    }
}

/// TLS ready to be used; cheap to clone.
#[derive(Clone)]
pub struct TlsClient {
    settings: Arc<TlsSettings>,
    config: Arc<ClientConfig>,
}

impl TlsClient {
    /// What it was made from.
    pub fn settings(&self) -> &TlsSettings {
        &self.settings
    }
}

impl PartialEq for TlsClient {
    fn eq(&self, other: &Self) -> bool {
        self.settings == other.settings
    }
}

impl Eq for TlsClient {}

impl std::fmt::Debug for TlsClient {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.settings.fmt(formatter)
    }
}

impl TlsClient {
    /// Reads the files of the settings.
    ///
    /// **Errors**: a file that cannot be used; a host that trusts nobody.
    pub fn new(settings: TlsSettings) -> Result<Self, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Versions)?
            .dangerous()
            .with_custom_certificate_verifier(verifier(&settings, &provider)?);
        let mut config = match &settings.identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => builder
                .with_client_auth_cert(certificates(certificate)?, private_key(key)?)
                .map_err(TlsError::Identity)?,
        };
        config.resumption = Resumption::disabled();
        let this = Self {
            config: Arc::new(config),
            settings: Arc::new(settings),
        };
        if let Some(name) = &this.settings.server_name {
            this.name(name)?;
        }
        Ok(this)
    }

    /// The configuration for one protocol above TLS, such as `http/1.1`.
    pub fn config(&self, protocol: &str) -> ClientConfig {
        let mut config = ClientConfig::clone(&self.config);
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        config
    }

    /// The name that the certificate of a host must be for; a port behind it counts nothing.
    ///
    /// **Errors**: a name no certificate can be for.
    pub fn name(&self, host: &str) -> Result<ServerName<'static>, TlsError> {
        let name = self.settings.server_name.as_deref().unwrap_or(host);
        let name = match name.strip_prefix('[') {
            Some(inside) => inside.split(']').next().unwrap_or(inside),
            // A bare IPv6 address has colons of its own.
            None if name.matches(':').count() == 1 => name.split(':').next().unwrap_or(name),
            None => name,
        };
        ServerName::try_from(name.to_owned()).map_err(|_| TlsError::Name(name.to_owned()))
    }
}

fn verifier(
    settings: &TlsSettings,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, TlsError> {
    if settings.insecure {
        return Ok(Arc::new(TrustsAnybody(Arc::clone(provider))));
    }
    let (trusted, is_own) = match &settings.ca {
        Some(path) => (certificates(path)?, true),
        None => (of_this_host()?, false),
    };
    let mut roots = RootCertStore::empty();
    let (n_usable, _) = roots.add_parsable_certificates(trusted.iter().cloned());
    if n_usable == 0 {
        return Err(TlsError::NobodyTrusted(": none can be read".to_owned()));
    }
    let by_authority =
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
            .build()
            .map_err(|error| TlsError::NobodyTrusted(format!(": {error}")))?;
    Ok(Arc::new(Trusts {
        by_authority,
        by_itself: if is_own { trusted } else { Vec::new() },
    }))
}

fn of_this_host() -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found = rustls_native_certs::load_native_certs();
    if found.certs.is_empty() {
        let why = found.errors.first();
        let why = why.map_or_else(String::new, |error| format!(": {error}"));
        return Err(TlsError::NobodyTrusted(why));
    }
    Ok(found.certs)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let wrong = |source: Box<dyn std::error::Error + Send + Sync>| TlsError::File {
        what: "certificates",
        path: path.to_owned(),
        source,
    };
    let text = fs_err::read(path).map_err(|error| wrong(error.into()))?;
    let found: Vec<_> = CertificateDer::pem_slice_iter(&text)
        .collect::<Result<_, _>>()
        .map_err(|error| wrong(error.into()))?;
    if found.is_empty() {
        return Err(wrong("it holds none".into()));
    }
    Ok(found)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let wrong = |source: Box<dyn std::error::Error + Send + Sync>| TlsError::File {
        what: "a private key",
        path: path.to_owned(),
        source,
    };
    let text = fs_err::read(path).map_err(|error| wrong(error.into()))?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|error| wrong(error.into()))
}

/// Trusts authorities, and certificates that the user named as they are: what
/// `openssl req -x509` makes is an authority of its own, and no authority may serve.
#[derive(Debug)]
struct Trusts {
    by_authority: Arc<WebPkiServerVerifier>,
    by_itself: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for Trusts {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verified = self.by_authority.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        match verified {
            // Its time is looked at before its use, so one that has expired does not come here.
            Err(rustls::Error::InvalidCertificate(
                CertificateError::UnknownIssuer | CertificateError::Other(_),
            )) if self.by_itself.contains(end_entity) => {
                let parsed = ParsedCertificate::try_from(end_entity)?;
                verify_server_name(&parsed, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.by_authority
            .verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.by_authority
            .verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.by_authority.supported_verify_schemes()
    }
}

/// Takes any certificate; who holds it must have its key all the same.
#[derive(Debug)]
struct TrustsAnybody(Arc<CryptoProvider>);

impl ServerCertVerifier for TrustsAnybody {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// What TLS says of an error of a connection, in words; `None` when it says nothing.
pub fn words_of(error: &io::Error) -> Option<String> {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = error
        .get_ref()
        .map(|inner| inner as &(dyn std::error::Error + 'static));
    while let Some(inner) = cause {
        if let Some(error) = inner.downcast_ref::<rustls::Error>() {
            return Some(in_words(error));
        }
        // What an error of the system wraps is not its source.
        cause = match inner
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref)
        {
            Some(wrapped) => Some(wrapped),
            None => inner.source(),
        };
    }
    None
}

fn in_words(error: &rustls::Error) -> String {
    use AlertDescription::{
        BadCertificate, CertificateRequired, CertificateUnknown, NoApplicationProtocol, UnknownCA,
    };
    match error {
        rustls::Error::InvalidCertificate(problem) => certificate_words(problem),
        rustls::Error::InvalidMessage(_) => {
            "what the server says is no TLS: is it http:// there?".to_owned()
        }
        rustls::Error::AlertReceived(
            BadCertificate | CertificateRequired | CertificateUnknown | UnknownCA,
        ) => "the server asks for a certificate of ours that it trusts (cert and key)".to_owned(),
        rustls::Error::AlertReceived(NoApplicationProtocol) => {
            "the server does not speak the version of HTTP that was asked for".to_owned()
        }
        rustls::Error::AlertReceived(alert) => format!("the server broke off: {alert:?}"),
        other => other.to_string(),
    }
}

/// Names in a certificate, without what kind they are of: `DnsName("app")`.
fn names(presented: &[String]) -> String {
    let bare = presented.iter().map(|name| {
        let inside = name
            .split_once('(')
            .map_or(name.as_str(), |(_, inside)| inside);
        inside.trim_matches(|c| "()\"".contains(c))
    });
    let names: Vec<&str> = bare.collect();
    names.join(", ")
}

fn certificate_words(problem: &CertificateError) -> String {
    match problem {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "the server's certificate has expired".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "the server's certificate is not valid yet: is this host's clock right?".to_owned()
        }
        CertificateError::UnknownIssuer => {
            "nobody we trust has signed the server's certificate (name its authority: ca)"
                .to_owned()
        }
        CertificateError::NotValidForName => {
            "the server's certificate is for another name (server_name)".to_owned()
        }
        CertificateError::NotValidForNameContext {
            expected,
            presented,
        } => format!(
            "the server's certificate is for {}, not for `{}` (server_name)",
            names(presented),
            expected.to_str()
        ),
        other => format!("the server's certificate is not to be trusted: {other}"),
    }
}

#[cfg(test)]
mod tests;
