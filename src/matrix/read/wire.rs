//! `tls` and `http2` of `[load]`: how requests travel to the target.

use crate::matrix::sweep::TargetUrl;
use crate::tls::TlsSettings;
use crate::toml_file::{Located, Notes, Table};

/// What is said of TLS, and whether HTTP/2 is spoken.
pub(super) fn wire(
    table: &mut Table<'_>,
    target: Option<&Located<TargetUrl>>,
    notes: &mut Notes<'_>,
) -> (Option<Located<TlsSettings>>, bool) {
    let http2 = table
        .get("http2")
        .and_then(|entry| table.truth(&entry, notes))
        .unwrap_or(false);
    let Some(entry) = table.get("tls") else {
        return (None, http2);
    };
    if target.is_some_and(|target| !target.value.is_https) {
        notes.hint(
            entry.key_at,
            "[load] has `tls` and a target without TLS",
            "write target = \"https://...\", or leave `tls` out",
        );
    }
    let location = notes.at(entry.at());
    let settings = Table::of(&entry, "`tls` of [load]", notes).map(|mut tls| {
        let settings = settings(&mut tls, notes);
        tls.finish(notes);
        settings
    });
    let located = settings.map(|value| Located { value, location });
    (located, http2)
}

fn settings(tls: &mut Table<'_>, notes: &mut Notes<'_>) -> TlsSettings {
    let mut text = |key| {
        let entry = tls.get(key)?;
        Some((tls.text(&entry, notes)?.value, entry.key_at))
    };
    let (ca, certificate, key) = (text("ca"), text("cert"), text("key"));
    let server_name = text("server_name").map(|(name, _)| name);
    let insecure = tls.get("insecure").is_some_and(|entry| {
        let is_insecure = tls.truth(&entry, notes).unwrap_or(false);
        if is_insecure && ca.is_some() {
            notes.add(
                entry.key_at,
                "`tls` of [load] has both `ca` (trust these) and `insecure` (trust anybody)",
            );
        }
        is_insecure
    });
    let identity = match (certificate, key) {
        (Some((certificate, _)), Some((key, _))) => Some((certificate.into(), key.into())),
        (None, None) => None,
        (Some((_, at)), None) => {
            notes.add(at, "`tls` of [load] has `cert` and no `key` to it");
            None
        }
        (None, Some((_, at))) => {
            notes.add(at, "`tls` of [load] has `key` and no `cert` to it");
            None
        }
    };
    TlsSettings {
        ca: ca.map(|(path, _)| path.into()),
        identity,
        insecure,
        server_name,
    }
}
