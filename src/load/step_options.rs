//! Keys that a step and the whole file have in common: credentials, compression,
//! redirects; and `cookies`, which is the file's alone.
//!
//! What a step says goes before what the file says. On one level a key that sets a
//! header and that header itself are one too many, since only one of them can be meant.

use std::ops::Range;

use http::header::{ACCEPT_ENCODING, AUTHORIZATION, COOKIE, HeaderName};
use toml::de::DeValue;

use super::step_file::{Text, read_text};
use super::template::Template;
use super::workload::Cookies;
use crate::toml_file::{Notes, Quoted, Table};

/// More redirects are a loop. **Source**: browsers give up at 20.
const REDIRECTS: Range<u64> = 0..21;

/// Headers as a file has them.
pub(super) type Headers = [(HeaderName, Quoted, Template)];

/// What one level says; what it does not say is left to the other.
#[derive(Debug, Default)]
pub(super) struct Options {
    pub(super) auth: Option<Auth>,
    pub(super) gzip: Option<bool>,
    pub(super) redirects: Option<u8>,
}

/// Where the header `authorization` comes from.
#[derive(Debug, Clone)]
pub(super) enum Auth {
    /// User and password.
    Basic(Text, Text),
    Bearer(Text),
    /// Nowhere, whatever the file says.
    None,
}

/// The keys of one level; `headers` are those of the same level.
pub(super) fn read_options(
    table: &mut Table<'_>,
    headers: &Headers,
    notes: &mut Notes<'_>,
) -> Options {
    let is_given = |name: &HeaderName| headers.iter().any(|(known, ..)| known == name);
    let auth = read_auth(table, notes);
    let gzip = table.get("gzip");
    for (key, header) in [
        ("basic", AUTHORIZATION),
        ("bearer", AUTHORIZATION),
        ("gzip", ACCEPT_ENCODING),
    ] {
        if let Some(entry) = table.get(key)
            && is_given(&header)
        {
            let message = format!(
                "`{key}` in {} sets the header `{header}`, and `headers` has one too",
                table.name()
            );
            notes.hint(entry.key_at, message, "keep one of them");
        }
    }
    let redirects = table
        .get("redirects")
        .and_then(|entry| table.whole(&entry, REDIRECTS, notes));
    Options {
        auth,
        gzip: gzip.and_then(|entry| table.truth(&entry, notes)),
        redirects: redirects.and_then(|n| u8::try_from(n).ok()),
    }
}

fn read_auth(table: &mut Table<'_>, notes: &mut Notes<'_>) -> Option<Auth> {
    let (basic, bearer) = (table.get("basic"), table.get("bearer"));
    if let (Some(_), Some(bearer)) = (basic, bearer) {
        let message = format!(
            "{} has both `basic` and `bearer` (allowed: one of them)",
            table.name()
        );
        notes.add(bearer.key_at, message);
        return None;
    }
    if let Some(entry) = bearer {
        table.text(&entry, notes)?;
        return read_text(table, &entry, notes).map(Auth::Bearer);
    }
    let entry = basic?;
    let mut basic = Table::of(&entry, &format!("`basic` of {}", table.name()), notes)?;
    let user = basic
        .need("user", "user = \"loadtest\"")
        .and_then(|entry| read_text(&basic, &entry, notes));
    let password = basic
        .need("password", "password = \"${env.PASSWORD}\"")
        .and_then(|entry| read_text(&basic, &entry, notes));
    basic.finish(notes);
    let user = user?;
    // RFC 7617, section 2: the first colon ends the user.
    if let Some(at) = user.0.text.find(':') {
        notes.inside(&user.0, at, "the user of `basic` cannot hold a colon");
    }
    Some(Auth::Basic(user, password?))
}

/// What a step alone may say: that the file's credentials are not for it.
pub(super) fn read_no_auth(step: &mut Table<'_>, options: &mut Options, notes: &mut Notes<'_>) {
    let Some(entry) = step.get("auth") else {
        return;
    };
    if step.word(&entry, &[("none", ())], &[], notes).is_none() {
        return;
    }
    if options.auth.is_some() {
        let message = format!(
            "{} has credentials of its own and `auth = \"none\"`",
            step.name()
        );
        notes.add(entry.key_at, message);
    }
    options.auth = Some(Auth::None);
}

/// `cookies = true`, `false` or `"journey"`.
pub(super) fn read_cookies(file: &mut Table<'_>, notes: &mut Notes<'_>) -> Cookies {
    let Some(entry) = file.get("cookies") else {
        return Cookies::Off;
    };
    match entry.value.get_ref() {
        DeValue::Boolean(true) => Cookies::User,
        DeValue::Boolean(false) => Cookies::Off,
        DeValue::String(text) if text == "journey" => Cookies::Journey,
        _ => {
            file.wrong(&entry, "true, false or \"journey\"", notes);
            Cookies::Off
        }
    }
}

/// Where cookies are kept, none is written by hand.
pub(super) fn check_cookie_header(headers: &Headers, cookies: Cookies, notes: &mut Notes<'_>) {
    let by_hand = headers.iter().find(|(name, ..)| *name == COOKIE);
    if let (Some((_, value, _)), true) = (by_hand, cookies != Cookies::Off) {
        notes.hint(
            value.at,
            "the header `cookie` is made from the cookies that are kept",
            "write either `cookies` or the header",
        );
    }
}
