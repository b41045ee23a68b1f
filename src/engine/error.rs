//! Why a call to the engine failed.
//!
//! One struct for every call, built by one helper, so that an operation and its
//! error cannot be mixed up. **Invariant**: the message is operation and object;
//! the cause is the source and is never repeated in the message. Read `api.rs` next.

use std::time::Duration;

/// Kinds of failure that callers tell apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EngineErrorKind {
    /// Nothing answers at the endpoint.
    NoDaemon,
    /// The endpoint is there, this user may not use it.
    Denied,
    /// The engine does not hold the image and cannot get it.
    ImageMissing,
    /// The object does not exist.
    NotFound,
    /// The object is in a state that forbids the call; it may pass later.
    Conflict,
    /// The engine's disk is full.
    DiskFull,
    /// No answer within the call's deadline.
    Timeout,
    /// Anything else.
    Other,
}

/// A call to the engine that failed.
#[derive(Debug, thiserror::Error)]
#[error("{operation} {object}")]
pub struct EngineError {
    /// What was asked.
    pub operation: &'static str,
    /// Of what.
    pub object: String,
    /// What sort of failure it is.
    pub kind: EngineErrorKind,
    /// What to do next, where that is known.
    pub hint: Option<String>,
    /// Why it failed.
    #[source]
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

impl EngineError {
    /// A failure with the hint that its kind and cause suggest.
    pub fn new(
        operation: &'static str,
        object: impl Into<String>,
        kind: EngineErrorKind,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        let (object, source) = (object.into(), source.into());
        let hint = hint_for(kind, &object, &source.to_string());
        Self {
            operation,
            object,
            kind,
            hint,
            source,
        }
    }

    /// The engine did not answer in time.
    pub fn timed_out(operation: &'static str, object: impl Into<String>, limit: Duration) -> Self {
        Self::new(
            operation,
            object,
            EngineErrorKind::Timeout,
            format!("no answer within {limit:?}"),
        )
    }

    /// The next step, to be shown on a line of its own.
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Whether the cause lies outside the trial, so that the next one would meet it too.
    pub fn is_environment(&self) -> bool {
        matches!(
            self.kind,
            EngineErrorKind::NoDaemon
                | EngineErrorKind::Denied
                | EngineErrorKind::ImageMissing
                | EngineErrorKind::DiskFull
        )
    }
}

fn hint_for(kind: EngineErrorKind, object: &str, cause: &str) -> Option<String> {
    let hint = match kind {
        EngineErrorKind::NoDaemon => {
            "start the Docker Engine, or set DOCKER_HOST to the address of one that runs".to_owned()
        }
        EngineErrorKind::Denied => {
            "run as a user who may use the engine's socket, for example one in the group `docker`"
                .to_owned()
        }
        EngineErrorKind::ImageMissing => {
            format!("pull, build or load the image `{object}` and check its name and tag")
        }
        EngineErrorKind::DiskFull => {
            "free space in the engine's data folder (`docker system df` shows what fills it)"
                .to_owned()
        }
        EngineErrorKind::Timeout => {
            "the engine hangs or is overloaded: see its own log, then try again".to_owned()
        }
        // The default pools hold about 30 networks; leftovers of killed sweeps eat them up.
        EngineErrorKind::Other | EngineErrorKind::Conflict
            if cause.contains("address pool") || cause.contains("Pool overlaps") =>
        {
            "the engine has no free address range: remove unused networks (`nightsweep clean` \
             removes ours), or drop the fixed subnet from the Compose file"
                .to_owned()
        }
        EngineErrorKind::Other if cause.contains("HTTP request to an HTTPS server") => {
            "this engine wants TLS: set DOCKER_TLS_VERIFY=1, and DOCKER_CERT_PATH to the folder of \
             ca.pem, cert.pem and key.pem"
                .to_owned()
        }
        EngineErrorKind::Other if cause.contains("peer certificate") => {
            "the ca.pem used does not vouch for this engine: take the one that its certificate \
             was made with"
                .to_owned()
        }
        EngineErrorKind::Other if object.starts_with("ssh://") => {
            "`ssh HOST docker version` must work without asking for anything".to_owned()
        }
        EngineErrorKind::Conflict if cause.contains("already in use by container") => {
            "an earlier process left it behind: remove it with `nightsweep clean`".to_owned()
        }
        EngineErrorKind::NotFound | EngineErrorKind::Conflict | EngineErrorKind::Other => {
            return None;
        }
    };
    Some(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_never_repeats_the_cause() {
        let error = EngineError::new("start", "ns-1-app", EngineErrorKind::Other, "no such file");
        assert_eq!(error.to_string(), "start ns-1-app");
        assert_eq!(
            crate::problem::chain(&error),
            "start ns-1-app: no such file"
        );
    }

    #[test]
    fn environment_errors_always_say_what_to_do() {
        for kind in [
            EngineErrorKind::NoDaemon,
            EngineErrorKind::Denied,
            EngineErrorKind::ImageMissing,
            EngineErrorKind::DiskFull,
        ] {
            let error = EngineError::new("find image", "postgres:17", kind, "x");
            assert!(error.is_environment(), "{kind:?}");
            assert!(error.hint().is_some(), "{kind:?}");
        }
        let conflict = EngineError::new("remove", "net", EngineErrorKind::Conflict, "in use");
        assert!(!conflict.is_environment());
    }
}
