//! `hayate status`, `reload` and `stop`: one request to the control socket.

use std::{
    io::{Error, ErrorKind},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    pin::pin,
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, Result, anyhow, bail};
use http_body_util::{BodyExt, Empty};
use hyper::{Method, Request, StatusCode, body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    process::{Pid, PidfdFlags, pidfd_open},
};
use serde_json::Value;
use tokio::{net::UnixStream, time::timeout};

use crate::{args::ControlArgs, control::SYSTEM_CONTROL, master::default_control, terminal};

/// How long the server may take for the first word of an answer. The kernel takes connections for a front that is gone, and one that hangs is replaced
/// sooner than this.
const PATIENCE: Duration = Duration::from_secs(30);
/// After so long the user is told what is waited for.
const SOON: Duration = Duration::from_secs(2);

struct Connection {
    sender: http1::SendRequest<Empty<Bytes>>,
    driver: tokio::task::JoinHandle<()>,
    /// The process that listens, which is the master.
    master: Option<(Pid, OwnedFd)>,
}

async fn connect(args: &ControlArgs) -> Result<Connection> {
    let system = Path::new(SYSTEM_CONTROL);
    let path: PathBuf = match (&args.control, default_control()) {
        (Some(path), _) => path.clone(),
        (None, Some(path)) => path,
        (None, None) if system.exists() => bail!("{}", services(system)),
        (None, None) => bail!("XDG_RUNTIME_DIR is not set; name the server's socket with --control"),
    };
    let stream = UnixStream::connect(&path).await.map_err(|error| {
        let other = (args.control.is_none() && path != system && system.exists()).then_some(system);
        anyhow!("{}", nobody_answers(&path, &error, other))
    })?;
    // One of another container is not seen.
    let master = stream.peer_cred().ok().and_then(|peer| Pid::from_raw(peer.pid()?));
    let master = master.and_then(|pid| Some((pid, pidfd_open(pid, PidfdFlags::empty()).ok()?)));
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let driver = tokio::spawn(async move {
        // Its errors reach the request as well.
        let _ = connection.await;
    });
    let mut connection = Connection { sender, driver, master };
    // What is asked for may take its time. That there is somebody to ask does not.
    let answered = {
        let mut answer = pin!(connection.request(Method::GET, "/healthz"));
        match timeout(SOON, &mut answer).await {
            Ok(answer) => Some(answer),
            Err(_) => {
                crate::complain(format_args!(
                    "the server runs, and its front does not answer yet; waiting for it, {} s at most",
                    PATIENCE.as_secs()
                ));
                timeout(PATIENCE.saturating_sub(SOON), answer).await.ok()
            }
        }
    };
    match answered {
        Some(answer) => answer.map(|_| connection),
        None => bail!("{}", no_front(connection.master.as_ref().map(|(pid, _)| *pid))),
    }
}

/// The server is there, and nobody of it answers.
fn no_front(master: Option<Pid>) -> String {
    let end = match master {
        Some(pid) => format!("kill -TERM {} ends the server", pid.as_raw_nonzero()),
        None => "SIGTERM ends the server".to_owned(),
    };
    format!(
        "the server runs, and its front has not answered for {} s: the server's log says why it does not start (journalctl -u hayate). Put that right, \
         and it starts within half a minute; {end}",
        PATIENCE.as_secs()
    )
}

/// What to say to a user whose own server does not run, where root's does: whoever installed the package meets the service this way first.
fn services(system: &Path) -> String {
    format!("the service's control socket is {}, which is root's: run this as root (sudo)", system.display())
}

/// Why there is no connection, and what to do. `other`: the socket of root's server, if that is not where this looked.
fn nobody_answers(path: &Path, error: &Error, other: Option<&Path>) -> String {
    let path = path.display();
    if error.kind() == ErrorKind::PermissionDenied {
        return format!(
            "this user may not use the control socket {path} ({error}): run this as root (sudo), or as the server's user"
        );
    }
    let look = other.map_or_else(|| "is it running, and is this its --control?".to_owned(), services);
    format!("no server answers at {path} ({error}); {look}")
}

impl Connection {
    async fn request(&mut self, method: Method, path: &str) -> Result<(StatusCode, String)> {
        self.sender.ready().await.context("the server went away")?;
        let request =
            Request::builder().method(method).uri(path).header("host", "hayate").body(Empty::new())?;
        let response = self.sender.send_request(request).await.context("the server went away")?;
        let status = response.status();
        let body = response.into_body().collect().await.context("the server went away")?.to_bytes();
        Ok((status, String::from_utf8_lossy(&body).trim_end().to_owned()))
    }
}

/// `hayate status`. Exit status 3 while the first boot is under way.
pub async fn status(args: &ControlArgs, json: bool) -> Result<ExitCode> {
    let (status, body) = connect(args).await?.request(Method::GET, "/status").await?;
    if status != StatusCode::OK {
        bail!("{body}");
    }
    let parsed: Value = serde_json::from_str(&body).context("the server's answer is no JSON")?;
    crate::end_with_the_reader();
    if json {
        say!("{}", terminal::json(&body));
    } else {
        crate::say(format_args!("{}", describe(&parsed)));
    }
    Ok(if parsed["state"] == "starting" { ExitCode::from(3) } else { ExitCode::SUCCESS })
}

/// `hayate reload`
pub async fn reload(args: &ControlArgs) -> Result<ExitCode> {
    let (status, body) = connect(args).await?.request(Method::POST, "/reload").await?;
    match status {
        StatusCode::OK => {
            say!("{body}");
            Ok(ExitCode::SUCCESS)
        }
        StatusCode::SERVICE_UNAVAILABLE => Err(anyhow!("nothing was reloaded: {body}")),
        _ => Err(anyhow!("the reload was refused, the old processes go on serving:\n{body}")),
    }
}

/// `hayate upgrade`: returns when the new program serves, or was refused.
pub async fn upgrade(args: &ControlArgs) -> Result<ExitCode> {
    let (status, body) = connect(args).await?.request(Method::POST, "/upgrade").await?;
    match status {
        StatusCode::OK => {
            say!("{body}");
            Ok(ExitCode::SUCCESS)
        }
        StatusCode::SERVICE_UNAVAILABLE => Err(anyhow!("nothing was upgraded: {body}")),
        _ => Err(anyhow!("the upgrade was refused, what served goes on serving:\n{body}")),
    }
}

/// `hayate stop`: returns when the server is gone.
pub async fn stop(args: &ControlArgs) -> Result<ExitCode> {
    let mut connection = connect(args).await?;
    let (status, body) = connection.request(Method::POST, "/stop").await?;
    if status != StatusCode::ACCEPTED {
        bail!("{body}");
    }
    // The connection ends with the process that answers, which others may outlive.
    let Connection { sender, driver, master } = connection;
    let _ = driver.await;
    drop(sender);
    if let Some((_, master)) = master {
        while let Err(Errno::INTR) = poll(&mut [PollFd::new(&master, PollFlags::IN)], None) {}
    }
    say!("stopped");
    Ok(ExitCode::SUCCESS)
}

fn bytes(n: &Value) -> String {
    format!("{:.1} MB", n.as_f64().unwrap_or(0.0) / 1e6)
}

/// Lines about rewinding, if the application is rewound or was to be.
fn describe_rewind(app: &Value) -> String {
    let mut out = String::new();
    // A value, not its map: what a server of another version leaves out is null.
    let fallback = &app["fallback"];
    if fallback.is_object() {
        let how = match fallback["to"].as_str() {
            Some("classes") => "run with all classes left to requests",
            Some("fork") => "not rewound, but run with a fork for each request",
            _ => "not rewound, but run in classic mode",
        };
        out += &format!("  {how}: {}\n", terminal::within_line(fallback["why"].as_str().unwrap_or_default()));
    }
    for (key, what) in [
        ("private_boot", "each worker boots by itself"),
        ("cold_boot", "booted without warm-up requests"),
        ("boot_remark", "look at this"),
    ] {
        if let Some(why) = app[key].as_str() {
            out += &format!("  {what}: {}\n", terminal::within_line(why));
        }
    }
    let rewind = &app["rewind"];
    if !rewind.is_object() {
        return out;
    }
    let number = |key: &str| rewind[key].as_f64().unwrap_or(0.0);
    let rewinds = number("rewinds");
    out += &format!(
        "  rewind {}, tracking {}, {rewinds} rewinds",
        rewind["rewind"].as_str().unwrap_or_default(),
        rewind["tracking"].as_str().unwrap_or("(not known yet)"),
    );
    if rewinds > 0.0 {
        let [clean, scan, copy] = ["clean_ns", "scan_ns", "copy_ns"].map(|key| number(key) / rewinds / 1e3);
        out += &format!(
            ", {:.1} µs each (clean-up {clean:.1}, scan {scan:.1}, copy {copy:.1}), {} hot pages, {:.1} others",
            clean + scan + copy,
            number("hot_pages"),
            number("cold_pages") / rewinds,
        );
    }
    let (warm, resets) = (number("warm"), number("resets"));
    if warm > 0.0 || resets > 0.0 {
        let each = if resets > 0.0 { number("reset_ns") / resets / 1e3 } else { 0.0 };
        out += &format!("; {warm} warm connections, put back {resets} times, {each:.1} µs each");
    }
    out + "\n"
}

/// The status for people.
fn describe(status: &Value) -> String {
    let text = |value: &Value| terminal::within_line(value.as_str().unwrap_or_default()).into_owned();
    let list = |value: &Value| value.as_array().into_iter().flatten().map(text).collect::<Vec<_>>().join(" ");
    let mut out = format!(
        "Hayate {} {}, process {}, up {} s, {} connections, {}\n",
        text(&status["version"]),
        text(&status["state"]),
        status["pid"],
        status["uptime"],
        status["connections"],
        list(&status["listen"]),
    );
    if let Some(error) = status["last_reload"]["error"].as_str() {
        out += &format!("The last reload was refused: {}\n", terminal::within_line(error));
    }
    for site in status["static_sites"].as_array().into_iter().flatten() {
        out +=
            &format!("\n{}: static files, no PHP, {}\n", text(&site["name"]), text(&site["document_root"]));
    }
    for app in status["in_pools"].as_array().into_iter().flatten() {
        let [name, pool, root] = ["name", "pool", "document_root"].map(|key| text(&app[key]));
        out += &format!("\n{name}: in the workers of {pool}, {root}\n");
    }
    for app in status["failed"].as_array().into_iter().flatten() {
        out +=
            &format!("\n{}: not served, all requests get 503\n  {}\n", text(&app["name"]), text(&app["why"]));
    }
    for app in status["apps"].as_array().into_iter().flatten() {
        out += &format!(
            "\n{}: {}, {} mode, PHP {}, {}\n",
            text(&app["name"]),
            text(&app["state"]),
            text(&app["mode"]),
            app["php"].as_str().unwrap_or("(not started yet)"),
            text(&app["document_root"]),
        );
        if let Some(other) = app["beside"].as_str() {
            out += &format!("  runs PHP scripts beside {other}\n");
        }
        if let Some(why) = app["unavailable"].as_str() {
            out += &format!("  cannot serve: {}\n", terminal::within_line(why));
        } else if let Some(why) = app["boot_error"].as_str() {
            out += &format!("  a boot failed: {}\n", terminal::within_line(why));
        }
        out += &describe_rewind(app);
        let workers = app["workers"].as_array().cloned().unwrap_or_default();
        out += &format!(
            "  {} workers ({}-{}), {} requests wait, {} of memory\n",
            workers.len(),
            app["workers_min"],
            app["workers_max"],
            app["queue"],
            bytes(&app["memory"]),
        );
        for worker in &workers {
            out += &format!(
                "    {:>4}  process {:<8} {:<9} {:>9} requests {:>10} {:>7} s\n",
                worker["index"].to_string(),
                worker["pid"].to_string(),
                if worker["stopped"] == true { "stopped".into() } else { text(&worker["state"]) },
                worker["requests"].to_string(),
                bytes(&worker["memory"]),
                worker["age"].to_string(),
            );
        }
        let ended: Vec<String> = app["restarts"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(cause, n)| format!("{cause} {n}"))
            .collect();
        if !ended.is_empty() {
            out += &format!("  workers ended: {}\n", ended.join(", "));
        }
        if app["slow_requests"].as_u64().is_some_and(|n| n > 0) {
            out += &format!("  slow requests: {} (the log says what they did)\n", app["slow_requests"]);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_not_root_learns_of_the_service() {
        let own = Path::new("/run/user/1000/hayate.sock");
        let absent = Error::from(ErrorKind::NotFound);
        let said = nobody_answers(own, &absent, Some(Path::new(SYSTEM_CONTROL)));
        assert!(said.contains("no server answers at /run/user/1000/hayate.sock"), "{said}");
        assert!(said.contains("/run/hayate/control.sock") && said.contains("sudo"), "{said}");
        let said = nobody_answers(own, &absent, None);
        assert!(said.contains("is it running") && !said.contains("sudo"), "{said}");
        let said = nobody_answers(Path::new(SYSTEM_CONTROL), &Error::from(ErrorKind::PermissionDenied), None);
        assert!(
            said.contains("may not use the control socket /run/hayate/control.sock") && said.contains("sudo"),
            "{said}"
        );
    }

    #[test]
    fn rewinding_is_described_by_its_means() {
        let app = serde_json::json!({"rewind": {
            "rewind": "on", "tracking": "uffd", "rewinds": 1000, "clean_ns": 4_000_000, "scan_ns": 0, "copy_ns": 9_000_000,
            "cold_pages": 2000, "hot_pages": 69,
        }});
        assert_eq!(
            describe_rewind(&app),
            "  rewind on, tracking uffd, 1000 rewinds, 13.0 µs each (clean-up 4.0, scan 0.0, copy 9.0), 69 hot pages, 2.0 others\n"
        );
        let fallen = serde_json::json!({"rewind": null, "fallback": {"to": "classic", "why": "so it is"}});
        assert_eq!(describe_rewind(&fallen), "  not rewound, but run in classic mode: so it is\n");
        assert_eq!(describe_rewind(&serde_json::json!({"rewind": null, "fallback": null})), "");
    }
}
