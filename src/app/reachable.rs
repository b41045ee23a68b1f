//! Whether the services that answer here can be reached at all.

use super::error::AppError;
use super::inputs::Inputs;
use crate::engine::HostFacts;

/// Refuses an engine on another host, once, where trials would be refused one by one.
///
/// **Errors**: load or a `[[prove]]` goes to a service of the stack.
pub(super) fn refuse_unreachable(inputs: &Inputs, facts: &HostFacts) -> Result<(), AppError> {
    match inputs.asked_services().first() {
        Some(service) => judge(service, facts),
        None => Ok(()),
    }
}

fn judge(service: &str, facts: &HostFacts) -> Result<(), AppError> {
    if facts.direct || facts.local {
        return Ok(());
    }
    let words = anyhow::anyhow!(
        "the engine at {} is on another host, and service `{service}` cannot be reached from here",
        facts.endpoint
    );
    Err(AppError::environment(words).hint(
        "run nightsweep on the engine's own host; from here, `check`, `plan`, `stack`, `doctor` and \
         `clean` work, and so does a sweep whose `[load] target` is an address outside the stack",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_elsewhere_is_refused_before_anything_is_launched() {
        let facts = |direct, local| HostFacts {
            endpoint: "ssh://far".to_owned(),
            direct,
            local,
            ..HostFacts::default()
        };
        for (direct, local) in [(true, true), (true, false), (false, true)] {
            assert!(judge("app", &facts(direct, local)).is_ok());
        }
        let error = judge("app", &facts(false, false)).unwrap_err();
        insta::assert_snapshot!(error.text(), @r"
        error: the engine at ssh://far is on another host, and service `app` cannot be reached from here
          hint: run nightsweep on the engine's own host; from here, `check`, `plan`, `stack`, `doctor` and `clean` work, and so does a sweep whose `[load] target` is an address outside the stack
        ");
        assert_eq!(
            format!("{:?}", error.exit_code()),
            format!("{:?}", std::process::ExitCode::from(3))
        );
    }
}
