//! How requests travel: TLS and HTTP/2, as a matrix or flags say it.

use std::path::Path;

use super::error::AppError;
use super::inputs::Inputs;
use crate::cli::WireArgs;
use crate::matrix::{Sweep, TargetUrl};
use crate::problem::{Location, Problem, chain};
use crate::tls::{TlsClient, TlsError, TlsSettings, Wire};

/// TLS for whatever of a sweep is asked over it; its files are relative to the matrix.
pub(super) fn tls_of(
    sweep: &Sweep,
    folder: &Path,
    problems: &mut Vec<Problem>,
) -> Option<TlsClient> {
    let target = &sweep.load.target;
    let seed = sweep.seed.as_ref().and_then(|seed| seed.target.as_ref());
    let proves = sweep.proves.iter().map(|prove| &prove.url);
    let asked = std::iter::once(target).chain(seed).chain(proves);
    let secured: Vec<_> = asked.filter(|url| url.value.is_https).collect();
    let first = secured.first()?;
    let (mut settings, at) = match &sweep.load.tls {
        Some(tls) => (tls.value.clone(), &tls.location),
        None => (TlsSettings::default(), &first.location),
    };
    let identity = settings.identity.iter_mut().flat_map(|(a, b)| [a, b]);
    for path in settings.ca.iter_mut().chain(identity) {
        *path = folder.join(&*path);
    }
    let mut wrong = |error: &TlsError, at: &Location| {
        problems.push(Problem::new(at.clone(), chain(error)).with_hint(error.hint()));
    };
    let client = TlsClient::new(settings)
        .map_err(|error| wrong(&error, at))
        .ok()?;
    for url in secured {
        if let Err(error) = client.name(&url.value.host) {
            wrong(&error, &url.location);
        }
    }
    Some(client)
}

impl Inputs {
    /// What stands between us and an address. HTTP/2 is spoken to the target alone: who else is
    /// asked there may be served by something else.
    pub(super) fn wire_to(&self, url: &TargetUrl) -> Wire {
        let load = &self.sweep.load;
        let target = &load.target.value;
        let is_target = (&url.host, url.port) == (&target.host, target.port);
        Wire {
            tls: self.tls.clone().filter(|_| url.is_https),
            http2: load.http2 && is_target,
        }
    }
}

/// What the flags say.
///
/// **Errors**: files that cannot be used, flags of TLS for an address without it.
pub(super) fn wire_of(arguments: &WireArgs, url: &TargetUrl) -> Result<Wire, AppError> {
    let WireArgs {
        http2,
        ca,
        cert,
        key,
        insecure,
        server_name,
    } = arguments;
    let settings = TlsSettings {
        ca: ca.clone(),
        identity: cert.clone().zip(key.clone()),
        insecure: *insecure,
        server_name: server_name.clone(),
    };
    if !url.is_https {
        if settings != TlsSettings::default() {
            let error = anyhow::anyhow!("`{}` has no TLS to set up", url.text);
            return Err(AppError::input(error).hint("write https://, or leave the flags out"));
        }
        return Ok(Wire {
            tls: None,
            http2: *http2,
        });
    }
    let usable = TlsClient::new(settings).and_then(|client| {
        client.name(&url.host)?;
        Ok(client)
    });
    let client = usable.map_err(|error| {
        let hint = error.hint();
        AppError::input(error).hint(hint)
    })?;
    Ok(Wire {
        tls: Some(client),
        http2: *http2,
    })
}
