//! Single requests: is the engine ready, and is its answer right?

use std::{sync::LazyLock, time::Duration};

use anyhow::Result;
use ureq::http::Request;

use crate::data::{Check, Workload};

/// How long a single request may take.
const TIMEOUT: Duration = Duration::from_secs(20);
/// How much of a wrong body is shown.
const SHOWN: usize = 600;

/// Without kept connections: some engines have as many processes as connections.
static AGENT: LazyLock<ureq::Agent> = LazyLock::new(|| {
    ureq::Agent::config_builder()
        .timeout_global(Some(TIMEOUT))
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .max_idle_connections(0)
        .proxy(None)
        .user_agent("hayate-lab")
        .build()
        .new_agent()
});

/// An answer is not what the workload wants.
#[derive(Debug, thiserror::Error)]
#[error("{request}: {reason}")]
pub struct CheckError {
    request: String,
    reason: String,
}

/// The status of a path; `None` while nobody answers.
pub fn status(url: &str) -> Option<u16> {
    AGENT.get(url).header("connection", "close").call().ok().map(|answer| answer.status().as_u16())
}

/// Makes all requests that the workload's checks are about, and compares the answers.
///
/// # Errors
/// The first answer that is wrong, or did not come.
pub fn check(base: &str, workload: &Workload, path: Option<&str>) -> Result<(), CheckError> {
    for check in &workload.checks {
        let target =
            check.path.clone().or_else(|| path.map(str::to_owned)).unwrap_or_else(|| workload.first_path());
        one(base, &target, workload, check).map_err(|reason| CheckError { request: target, reason })?;
    }
    Ok(())
}

fn one(base: &str, target: &str, workload: &Workload, check: &Check) -> Result<(), String> {
    let method = workload.method.as_deref().unwrap_or(if workload.body.is_some() { "POST" } else { "GET" });
    let mut request =
        Request::builder().method(method).uri(format!("{base}{target}")).header("connection", "close");
    for (name, value) in &workload.headers {
        request = request.header(name, value);
    }
    let request =
        request.body(workload.body.clone().unwrap_or_default()).map_err(|error| error.to_string())?;
    let mut answer = AGENT.run(request).map_err(|error| format!("no answer: {error}"))?;
    let status = answer.status().as_u16();
    let body =
        answer.body_mut().read_to_string().map_err(|error| format!("status {status}, and then {error}"))?;
    let shown: String = body.chars().take(SHOWN).collect();
    let expected = check.status.unwrap_or(200);
    if status != expected {
        return Err(format!("status {status} instead of {expected}: {shown}"));
    }
    for (name, begin) in &check.headers {
        let value = answer.headers().get(name).and_then(|value| value.to_str().ok());
        if !value.is_some_and(|value| value.starts_with(begin.as_str())) {
            let value = value.unwrap_or("missing");
            return Err(format!("header {name} is {value} instead of {begin}: {shown}"));
        }
    }
    if let Some(expected) = &check.body
        && body != *expected
    {
        return Err(format!("the body is {shown:?} instead of {expected:?}"));
    }
    for part in &check.contains {
        if !body.contains(part.as_str()) {
            return Err(format!("'{part}' is not in the body: {shown}"));
        }
    }
    if let Some(expected) = &check.json {
        let expected = serde_json::to_value(expected).map_err(|error| error.to_string())?;
        let found =
            serde_json::from_str(&body).map_err(|error| format!("the body is no JSON: {error}: {shown}"))?;
        if let Some(difference) = lacks(&expected, &found, "") {
            return Err(format!("{difference}: {shown}"));
        }
    }
    Ok(())
}

/// What of `expected` is not in `found`; objects may have more members.
fn lacks(expected: &serde_json::Value, found: &serde_json::Value, place: &str) -> Option<String> {
    use serde_json::Value::{Array, Object};
    match (expected, found) {
        (Object(expected), Object(found)) => expected.iter().find_map(|(key, value)| {
            let place = format!("{place}.{key}");
            match found.get(key) {
                None => Some(format!("{place} is missing")),
                Some(found) => lacks(value, found, &place),
            }
        }),
        (Array(expected), Array(found)) if expected.len() == found.len() => expected
            .iter()
            .zip(found)
            .enumerate()
            .find_map(|(i, (e, f))| lacks(e, f, &format!("{place}[{i}]"))),
        _ if expected == found => None,
        _ => Some(format!("{place} is {found} instead of {expected}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_may_have_more_members() {
        let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).expect("JSON");
        assert_eq!(lacks(&json(r#"{"a":1}"#), &json(r#"{"a":1,"b":2}"#), ""), None);
        let difference = lacks(&json(r#"{"a":{"b":[1,2]}}"#), &json(r#"{"a":{"b":[1,3]}}"#), "");
        assert_eq!(difference.as_deref(), Some(".a.b[1] is 3 instead of 2"));
        assert_eq!(lacks(&json(r#"{"a":1}"#), &json("{}"), "").as_deref(), Some(".a is missing"));
    }
}
