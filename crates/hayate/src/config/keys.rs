//! The keys of hayate.toml. The first paragraph of a key's doc comment is its description in docs/configuration.md; `Default:` and
//! `Flag:` in it are shown as columns there.

use std::{collections::BTreeMap, path::PathBuf};

use schemars::JsonSchema;
use serde::Deserialize;

use super::values::*;

/// Keys at the top of the file.
#[derive(Debug, Default, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct File {
    /// Addresses to listen on: `127.0.0.1:8080`, `[::1]:80`, `:80` (all IPv4 interfaces), `[::]:80` (all IPv6 interfaces), `unix:/run/hayate.sock`; or `{ address = ":443", tls = true, proxy_protocol = true }`: with TLS (by itself on ports 443 and 8443 once `[tls]` has certificates), after a PROXY header (version 1 or 2), which is believed from `trusted_proxies` only, others are turned away. One, or an array of up to 128. Default: `127.0.0.1:8080`; with TLS ports 80 and 443 of all interfaces. Flag: `--listen` (with `--tls` all its TCP addresses speak TLS but port 80, and beside others 8080).
    pub listen: Option<Listens>,
    /// Socket for `hayate status`, `reload` and `stop`; only its owner may use it. Default: `/run/hayate/control.sock` as root, else `$XDG_RUNTIME_DIR/hayate.sock`. Flag: `--control`.
    pub control: Option<PathBuf>,
    /// TCP address that answers `/metrics`, `/healthz` and `/readyz`; they are always on the control socket, too. Default: none. Flag: `--metrics`.
    pub metrics: Option<String>,
    /// File to write the process id to. One that holds the number of another server, which runs, is not taken. Default: none. Flag: `--pid-file`.
    pub pid_file: Option<PathBuf>,
    /// Access log: `off`, `-` for standard output, or a file, which is reopened at SIGUSR1. Lines hold targets with their query, and so tokens and other secrets that are in it, see docs/deployment.md. Default: `off`. Flag: `--access-log`.
    #[schemars(with = "Option<String>")]
    pub access_log: Option<AccessLogTo>,
    /// `combined` or `json`. Default: `combined`. Flag: `--access-log-format`.
    pub access_log_format: Option<AccessLogFormat>,
    /// How much Hayate logs on standard error: `error`, `warn`, `info`, `debug` or `trace`. PHP's own messages are `info` or worse. Default: `info`. Flag: `--log-level`.
    pub log_level: Option<LogLevel>,
    /// `compact` or `json`. Default: `compact`. Flag: `--log-format`.
    pub log_format: Option<LogFormat>,
    /// When started as root: the user that PHP runs as, and the front as well unless it has one of its own. Default: none, with a warning, and refused where other machines reach the server, but for `--dev` (`root` says that it is meant). Flag: `--user`.
    pub user: Option<String>,
    /// The group of PHP. Default: the user's. Flag: `--group`.
    pub group: Option<String>,
    /// When started as root: the user of the front, which speaks HTTP and reads static files; it is a member of the applications' groups as well. Default: `hayate` if there is such a user, else `user`.
    pub front_user: Option<String>,
    /// Threads that serve connections, 1 to 64; they share one queue, and each connection stays on one of them. Default: the number of processors that the server may use, by affinity and by the cgroup's quota; at most an eighth of a limit of processes (`pids.max`). Flag: `--front-threads`.
    pub front_threads: Option<u32>,
    /// Development mode: error pages show why, PHP shows its errors in the browser as `php -S` does (`[app.ini]` and the application may say otherwise), answers of PHP carry `Server-Timing` (milliseconds of waiting for a worker, of PHP, of the rewind before), and a failed first boot does not end the server. Never in production. Default: `false`. Flag: `--dev`.
    pub development: Option<bool>,
    /// Forbids PHP and all it starts to gain privileges, as by sudo or setuid programs. Default: `true`. Flag: `--no-new-privileges`.
    pub no_new_privileges: Option<bool>,
    /// Networks of proxies that are believed what they say of their visitors (`trusted_headers`), such as `10.0.0.0/8`; `unix` for peers on unix sockets. Default: none. Flag: `--trusted-proxies`.
    pub trusted_proxies: Option<OneOrMany>,
    /// The headers of `trusted_proxies` that are believed: some of `x-forwarded-for`, `x-forwarded-proto`, `x-forwarded-host`, `x-forwarded-port` and `forwarded`. Name only what the proxies set or remove themselves: one that they pass on is the visitor's word, and by the host a visitor would choose the application. `forwarded` is read where there is no `X-Forwarded-For` that is believed. See docs/deployment.md. Default: `x-forwarded-for`, `x-forwarded-proto`, `x-forwarded-port`. Flag: `--trusted-headers`.
    pub trusted_headers: Option<OneOrMany>,
    /// Lets clients without TLS speak HTTP/2 by beginning with its preface ("prior knowledge"), as proxies and programs do; browsers do not. Default: `false`.
    pub http2_prior_knowledge: Option<bool>,
    /// Sends 103 Early Hints (`hayate_early_hints()`, `headers_send(103)`) to clients of HTTP/1.1 as well; some take it for the answer. Those of HTTP/2 and 3 get it always. Default: `false`.
    pub early_hints_http1: Option<bool>,
    /// How long requests may finish after SIGTERM, SIGINT, SIGQUIT or `hayate stop` (`0`: they are cut off at once). After a reload or an upgrade requests have longer in the old processes: an hour, or as long as `request_timeout` and the `timeout` of rules allow. Default: `30s`. Flag: `--drain-timeout`.
    #[schemars(with = "Option<String>")]
    pub drain_timeout: Option<Time>,
    /// Files with further applications, `[[app]]` and nothing else: one, or a pattern such as `"sites/*.toml"`, whose files are read in the order of their names (those that begin with a dot are not), or an array of these. Relative to this file, as paths within such a file are to that one. `hayate reload` reads all of them again. Default: none.
    pub include: Option<OneOrMany>,
    /// TLS: certificates, by name. See docs/tls.md. Flag `--tls HOST`: TLS for this host, with a certificate by ACME, or a self-signed one in development.
    pub tls: Tls,
    /// Compression of answers. See docs/compression.md.
    pub compression: Compression,
    /// What a client may do.
    pub limits: Limits,
    /// The applications; each request goes to the one whose host and path fit best.
    pub app: Vec<App>,
}

/// TLS. It is on when `certificates` or `acme` are set, or by `--tls HOST`.
#[derive(Debug, Default, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Tls {
    /// `[{ certificate = "shop.pem", key = "shop.key" }]`: files in PEM, the certificate followed by its chain; the key in PKCS#8, PKCS#1 or SEC1. Clients get the one that names the host that they ask for, exactly or by a wildcard, else the first. Both may be readable by root alone. Read again when they change. Relative to this file. Default: none.
    pub certificates: Vec<CertificateFiles>,
    /// Switches certificates by themselves on (ACME): a mail address for the authority, or `on`. It implies that you agree to the authority's terms. Default: none; `on` with `--tls`.
    pub acme: Option<String>,
    /// Hosts to get certificates for. Default: the `hosts` of all applications that no certificate of `certificates` covers, wildcards excepted.
    pub acme_hosts: Option<OneOrMany>,
    /// The authority: `letsencrypt`, `letsencrypt-staging`, or the URL of its directory. Default: `letsencrypt`.
    pub acme_directory: Option<String>,
    /// File in PEM with the root certificate by which the authority's own server is known, for one that the system does not know. Relative to this file. Default: none, the system's.
    pub acme_ca: Option<PathBuf>,
    /// How the authority sees that a host is served here: `http-01` (port 80) or `tls-alpn-01` (port 443; not where several servers share a name). Default: `http-01`.
    pub acme_challenge: Option<ChallengeChoice>,
    /// Directory for accounts, certificates and keys, of the front's user alone. Several servers may share it. Relative to this file. Default: `/var/lib/hayate/acme` as root, else `~/.local/share/hayate/acme`.
    pub acme_storage: Option<PathBuf>,
    /// The authority's name for a kind of certificate, such as `shortlived`. Default: none, its usual.
    pub acme_profile: Option<String>,
    /// For authorities that want an account of theirs (external account binding): its identifier. Default: none.
    pub acme_eab_kid: Option<String>,
    /// File with its key, in base64url as they give it. Relative to this file. Default: none.
    pub acme_eab_key: Option<PathBuf>,
    /// Hosts that get a certificate when somebody first asks for them, such as `*.shops.example.org`; who asks first has to ask again. Default: none.
    pub on_demand: Option<OneOrMany>,
    /// Address of yours that knows which of them there are, such as `http://127.0.0.1:8000/may-have-a-certificate`: it is asked with `?domain=NAME` before each order, and says yes by a status of 200 to 299. Needed below a wildcard where visitors can think of names, see docs/tls.md. Default: none, 10 certificates at once for all wildcards of a domain together, one in six hours after that.
    pub on_demand_ask: Option<String>,
    /// Sends requests without TLS to the same address with TLS (301, 308 for other methods than GET and HEAD), challenges of ACME excepted, those of a trusted proxy that says its client came by TLS, and those for a host or path that no application has. Default: `true`.
    pub redirect_http: Option<bool>,
    /// Port by which visitors reach HTTPS, where something maps it to another one that Hayate listens on (a container's ports, a load balancer): `443`. `redirect_http` sends them there, and `Alt-Svc` names it. Default: the port that is listened on; of several that speak TLS `redirect_http` takes the first one without `proxy_protocol`.
    pub public_port: Option<u16>,
    /// `Strict-Transport-Security` in answers by TLS: how long browsers are to come by TLS only, such as `180d`. Default: `off`.
    #[schemars(with = "Option<String>")]
    pub hsts: Option<Time>,
    /// HTTP/3 as well, by UDP on the ports that speak TLS. Experimental, see docs/tls.md. Default: `false`.
    pub http3: Option<bool>,
    /// Oldest version that is spoken: `1.2` or `1.3`. Default: `1.2`.
    pub min_version: Option<TlsVersion>,
    /// Certificates of clients: `off`, `optional` (one that is shown has to be good), `required`. Scripts see `SSL_CLIENT_VERIFY`, `SSL_CLIENT_S_DN` and others, see docs/tls.md. Default: `off`.
    pub verify: Option<VerifyChoice>,
    /// File in PEM with the authorities of clients' certificates; one that is no authority's (CA:FALSE) is good for the client that shows it alone, see docs/tls.md. Relative to this file. Default: none.
    pub client_ca: Option<PathBuf>,
}

/// Compression of what PHP answers, and of static files that have no `.br`, `.zst` or `.gz` beside them.
#[derive(Debug, Default, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a table such as { enabled = false }")]
pub struct Compression {
    /// Whether answers are compressed. Read [BREACH](compression.md#breach) first where pages hold secrets. Default: `true`.
    pub enabled: Option<bool>,
    /// What is used, of what a client accepts; of two that it likes as well, the first: `["gzip"]` for gzip alone. Default: `["zstd", "br", "gzip"]`.
    #[schemars(with = "Option<Vec<String>>")]
    pub codings: Option<Vec<CodingChoice>>,
    /// Bytes below which an answer stays as it is, if its length is known before it begins. Default: `1K`.
    #[schemars(with = "Option<String>")]
    pub min_size: Option<Size>,
    /// Memory for compressing, of all answers together: 2 MB for each that goes out by zstd or br, 512 KB by gzip. Above, answers go out as they are. Default: `256M`.
    #[schemars(with = "Option<String>")]
    pub memory: Option<Size>,
    /// Media types; `*` in one stands for anything, once. Default: text, JSON, XML, JavaScript, WebAssembly, SVG, icons and fonts that are not packed, see docs/compression.md.
    pub types: Option<Vec<String>>,
    /// Level of zstd, 1 to 15: higher packs better and takes longer. Default: `3`.
    pub zstd_level: Option<u32>,
    /// Level of br (Brotli), 0 to 9. Default: `4`.
    pub br_level: Option<u32>,
    /// Level of gzip, 1 to 9. Default: `5`.
    pub gzip_level: Option<u32>,
}

/// What a client may do. Sizes as `128M`, times as `30s`.
#[derive(Debug, Default, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Bytes of a request's head, `1K` to `1M`; above, the answer is 431. Default: `32K`.
    #[schemars(with = "Option<String>")]
    pub head_size: Option<Size>,
    /// Headers of a request, 1 to 10000; above, 431. Default: `100`.
    pub header_count: Option<usize>,
    /// Bytes of the request target, 64 to 65534; above, 414. Default: `8K`.
    #[schemars(with = "Option<String>")]
    pub uri_length: Option<Size>,
    /// Bytes of a request's body; above, 413. PHP's `post_max_size` holds as well. `0`: no limit. Default: `128M`.
    #[schemars(with = "Option<String>")]
    pub body_size: Option<Size>,
    /// For agreeing upon TLS, and for a proxy's PROXY header. `off`, here and below: no limit. Default: `10s`.
    #[schemars(with = "Option<String>")]
    pub handshake_timeout: Option<Time>,
    /// From the first byte of a head to its end. `off`, here and below: no limit. Default: `15s`.
    #[schemars(with = "Option<String>")]
    pub header_timeout: Option<Time>,
    /// Between two requests on one connection. Default: `75s`.
    #[schemars(with = "Option<String>")]
    pub idle_timeout: Option<Time>,
    /// Between two pieces of a request's body. Default: `60s`.
    #[schemars(with = "Option<String>")]
    pub body_timeout: Option<Time>,
    /// Bytes a second that a client has to send of a body; it may be behind by as long as `body_timeout`, and what came quickly before is no credit. If a worker waits for the body (not of a POST) and others wait for a worker: over any three seconds. If three quarters of `temp_size` are used, and the client's temporary files hold no less than the mean of all clients': over any ten seconds, and at least a 600th of what it has sent. `0`: no such rule. Default: `500`.
    #[schemars(with = "Option<String>")]
    pub body_rate: Option<Size>,
    /// While the kernel takes nothing more of the answer, since the client takes nothing, or less than frees a part of the kernel's buffer in that time. Default: `60s`.
    #[schemars(with = "Option<String>")]
    pub write_timeout: Option<Time>,
    /// Bytes a second that a client has to take of an answer, once it takes less than there is: it may fall behind by what `write_timeout` gives, then its connection (of HTTP/2 and 3 its stream) is cut. `0`: no such rule. Default: `500`.
    #[schemars(with = "Option<String>")]
    pub write_rate: Option<Size>,
    /// HTTP/2 and 3: requests at one time on one connection, 1 to 10000; others are refused, and may be sent again. Default: `128`.
    pub http2_streams: Option<u32>,
    /// HTTP/2 and 3: bytes of a request's body that may be under way before it is read, `64K` to `16M`; on one connection four times as many. Default: `256K`.
    #[schemars(with = "Option<String>")]
    pub http2_window: Option<Size>,
    /// HTTP/2: bytes of answers that may wait on one connection for a client that reads slowly, `64K` to `64M`; each of `http2_streams` has its part, 16 KB at least and 256 KB at most. Default: `4M`.
    #[schemars(with = "Option<String>")]
    pub http2_send_buffer: Option<Size>,
    /// HTTP/2: requests that a client has begun and taken back before they were looked at, 1 to 10000; with one more the connection ends. Default: `20`.
    pub http2_resets: Option<usize>,
    /// HTTP/2: bytes that small pieces of request bodies may waste on one connection until they are read, `16K` to `64M`: a frame of data below 256 bytes as many as it is shorter. Above, the connection ends. (Of empty ones a connection may send 100.) Default: twice `http2_window`.
    #[schemars(with = "Option<String>")]
    pub http2_frame_budget: Option<Size>,
    /// HTTP/2: requests of one connection that are cut off since their client broke the protocol, 1 to 1000000; with one more the connection ends. Default: `1024`.
    pub http2_errors: Option<usize>,
    /// Memory for heads that are not complete, of all connections together, and for bodies that have just begun, `1M` or more. Above, the heads that took longest are given up, and bodies go to temporary files at once. Default: `32M`.
    #[schemars(with = "Option<String>")]
    pub gather_memory: Option<Size>,
    /// Memory for requests that are being answered, of all connections together, `4M` or more: heads, what of answers clients have not taken yet, and 10 KB for each request of HTTP/2 and 3. From half of it on, less of each answer is kept ready; above, connections that hold much are cut off, first those of the client that holds most. `0`: no limit. Default: `256M`.
    #[schemars(with = "Option<String>")]
    pub answer_memory: Option<Size>,
    /// Bytes of all temporary files together, in which bodies of slow clients wait. Above, uploads beyond 32 KB get 503, and a client that reads slowly is cut off once others wait for its worker; from three quarters on, one that uploads slowly and holds much is (see `body_rate`). `0`: no limit. Default: `4G`.
    #[schemars(with = "Option<String>")]
    pub temp_size: Option<Size>,
    /// The same for one client: an IPv4 address, or the first 64 bits of an IPv6 address. Behind a proxy name it in `trusted_proxies`, or all clients are one. `0`: no limit. Default: `1G`.
    #[schemars(with = "Option<String>")]
    pub temp_size_per_client: Option<Size>,
    /// Connections at one time, on all addresses together, 1 to 1000000, and never more than three quarters of the open files (LimitNOFILE); for further ones idle ones are closed, else they wait. Default: `16384`.
    pub connections: Option<usize>,
    /// Connections at one time of one client, an IPv4 address or the first 64 bits of an IPv6 address, up to 1000000; further ones are closed at once. Those of `trusted_proxies` do not count, those that a PROXY header names do. `0`: no limit. Default: `0`, since many may share an address; see docs/security.md.
    pub connections_by_address: Option<usize>,
    /// Requests at one time of one such client, up to 1000000, by all its connections together; above, 503. One counts until its answer is taken and its script is over. Behind `trusted_proxies` clients are those that the proxy names. `0`: no limit. Default: `0`.
    pub requests_by_address: Option<usize>,
}

/// One application.
#[derive(Debug, Default, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct App {
    /// For the log, `status` and the metrics. Default: the last name in `root`, symbolic links as they are.
    pub name: Option<String>,
    /// The application's directory, and PHP's working directory; has to be said, here or by the flag. Relative to this file. Default: none; without a file the current directory. Flag: `ROOT`.
    pub root: Option<PathBuf>,
    /// The directory that is served, to everybody. Directories that hold this file or `php_ini`, homes, and those of the system (`/`, `/etc`, `/var`, …) are refused, and `hayate check` warns of what looks like secrets below it. Relative to `root`. Default: `public` if that holds an index.php; `webroot` or `web` that does, in a project whose composer.json requires CakePHP or Yii; else `root` itself.
    pub document_root: Option<PathBuf>,
    /// Host names it answers to, such as `example.org` or `*.example.org`. Default: any.
    pub hosts: Option<OneOrMany>,
    /// Access log of its own: `off`, `-` for standard output, or a file, as `access_log` of the server, and in the same format. Relative to this file. Default: the server's.
    #[schemars(with = "Option<String>")]
    pub access_log: Option<AccessLogTo>,
    /// Whether its answers are compressed as `[compression]` says. Default: `true`.
    pub compress: Option<bool>,
    /// Path prefix it answers to, such as `/blog`. Default: `/`.
    pub path: Option<String>,
    /// Paths that answer nobody, with all that is below them, and what is packed beside them (`/a.json.gz` of `/a.json`), such as `["/data", "/conf"]`: 404, for files and scripts, whatever leads there: an index of a directory, the front controller, a rewrite; also below a rule's `alias`. For patterns write a rule with `glob` and `deny`. `hayate check` names those that a `.htaccess` closes for Apache. `X-Accel-Redirect` and `X-Sendfile` may lead there if `sendfile_roots` is set. Default: none.
    pub deny: Option<OneOrMany>,
    /// Directories of the document root whose `.htaccess` you have looked at, and whose rules are written here where they are needed, such as `["/", "/lib"]`: nothing is said of these any more, at the start or by `hayate check`. Default: none.
    pub htaccess_seen: Option<OneOrMany>,
    /// Names that are tried in a directory. Default: `["index.php", "index.html"]`.
    pub index: Option<OneOrMany>,
    /// Script below the document root that answers what is no file, whatever its name ends in but `.php` (a script that is not there is 404), as with nginx's `try_files $uri $uri/ /index.php`; without one that is 404. By itself `index.php` is one where the document root is called `public` or `web`, for Symfony, Laravel, WordPress and Drupal, where a `.htaccess` sends all to it, and in worker mode (there else the worker script); `""` is for none, and `hayate check` says which it is and why. Default: see there. Flag: `--front-controller`.
    pub front_controller: Option<String>,
    /// `classic`: each request starts afresh, as in php-fpm. `worker`: the application boots once, then handles requests. Default: `worker` with a worker script or for a recognised framework (see docs/rewind.md), else `classic`. Flag: `--mode`.
    pub mode: Option<ModeChoice>,
    /// Worker script; switches worker mode on. Relative to `root`. Default: none; for Symfony and Laravel the script that comes with Hayate. Flag: `--worker`.
    pub worker: Option<PathBuf>,
    /// Worker mode only. `on`: after each request the process is rewound to the booted application. `fork`: each request runs in a fork of it, which is slower. `off`: its state is kept, and leaks from one visitor to the next unless the application takes care. Default: `@REWIND@`. Flag: `--rewind`.
    pub rewind: Option<RewindChoice>,
    /// Paths of the application that are requested before the snapshot to which the process is rewound; `[]` for none (flag: `off`). `/` is its front page, also below `path`. They carry the first of `hosts`, see `$_SERVER['HAYATE_WARMUP']`, and what they change in the process stays. Before the boot they are made in classic mode as well, in a process that ends, so that OPcache has what they load. Default: `["/", "/", "/"]`. Flag: `--warmup`.
    pub warmup: Option<Vec<String>>,
    /// For debugging: compares all memory with the snapshot after every so many rewinds; `0`: never. Default: `0`. Flag: `--rewind-verify`.
    pub rewind_verify: Option<u64>,
    /// Worker mode with `rewind = "on"` only. `request`: a request opens the connections that it needs. `warm`: connections to MySQL, MariaDB, PostgreSQL and Redis that are open when a worker is ready to serve stay open; after each request their server is told to forget what it left there (see docs/databases.md). Default: `request`. Flag: `--connections`.
    pub connections: Option<ConnectionsChoice>,
    /// With `connections = "warm"`: the age at which a worker that keeps connections is replaced, by one that opens them afresh; each at another moment, from four fifths of it on, between requests. What a server looks at when a connection is opened (accounts, passwords, `ALTER ROLE … SET`, to which server a name leads) is in force everywhere by then. `off`: never. Default: `30m`. Flag: `--connection-lifetime`.
    #[schemars(with = "Option<String>")]
    pub connection_lifetime: Option<Time>,
    /// How long a boot may take, warm-up included, before it counts as failed. At the start it keeps other applications waiting for 10 s at most. `off`: no limit. Default: `60s`. Flag: `--boot-timeout`.
    #[schemars(with = "Option<String>")]
    pub boot_timeout: Option<Time>,
    /// When started as root: the user that this application's PHP runs as. Default: `user` at the top of the file.
    pub user: Option<String>,
    /// The group of this application's PHP. Default: its user's; without a user of its own, `group` at the top of the file.
    pub group: Option<String>,
    /// Number of worker processes, `4`, or between a least and a most, `2-8`; 1 to 1024. Default: from 1 to twice the number of processors, 4 at least; at most one for each 64 MB of a memory limit of the cgroup, and one for each four processes that a limit of processes (`pids.max`) leaves besides the server's own. Flag: `--workers`.
    #[schemars(with = "Option<String>")]
    pub workers: Option<Workers>,
    /// Name of another application of this file, which runs in classic mode: the scripts of this one run in its workers, as several sites share one pool of php-fpm. They have one OPcache, its limit included, one user, and one of everything else that is PHP's, which is written there; hosts, rules, files and `.user.ini` are each one's own. Default: none, workers of its own.
    pub pool: Option<String>,
    /// PHP version, such as `8.2`, or the path of a host binary. `off`: a site of static files, for which no PHP is started; scripts are 404 there, methods other than GET and HEAD for a file 405, `index` is `index.html`, and `front_controller` may name a page for what is no file. Default: the highest version that is installed. Flag: `--php`.
    pub php: Option<String>,
    /// php.ini in place of the distribution's. Relative to this file. Default: none. Flag: `--php-ini`.
    pub php_ini: Option<PathBuf>,
    /// Directories whose `.ini` files are read after php.ini, in this order; `""` is the distribution's, and with `[]` none are read. Relative to this file. Default: what `PHP_INI_SCAN_DIR` of the server's environment says, else the distribution's. Without `php_ini`, `PHPRC` of that environment names php.ini as for php-fpm.
    pub php_ini_scan_dir: Option<OneOrMany>,
    /// Requests after which a worker is replaced; `0`: never. Default: `0`. Flag: `--max-requests`.
    pub max_requests: Option<u64>,
    /// Private memory of a worker above which it is replaced after a request, `1M` or more; `0`: never. Default: `0`. Flag: `--max-memory`.
    #[schemars(with = "Option<String>")]
    pub max_memory: Option<Size>,
    /// How long PHP may run for one request, not counting the time it waits for the client; then the answer is 504. PHP ends the request as after `max_execution_time`; a second later its worker is killed, if it has not left. `off`: no limit. Default: `60s`. Flag: `--request-timeout`.
    #[schemars(with = "Option<String>")]
    pub request_timeout: Option<Time>,
    /// How long PHP may run for one request, not counting the time it waits for the client, until the log says what it is doing: a warning with the target and its query, secrets that are in it included, and the calls of PHP, as in the trace of an exception. Nothing is interrupted by it. At nine tenths of `request_timeout` the log says it in any case. Default: `off`. Flag: `--slow-request`.
    #[schemars(with = "Option<String>")]
    pub slow_request: Option<Time>,
    /// Requests that may wait for a worker, 1 to 1000000; above, the answer is 503. Default: `1024`. Flag: `--queue-limit`.
    pub queue_limit: Option<usize>,
    /// How long a request may wait for a worker; then the answer is 503. Default: `30s`. Flag: `--queue-timeout`.
    #[schemars(with = "Option<String>")]
    pub queue_timeout: Option<Time>,
    /// Whether the body of a request is gathered, in memory or in a temporary file, before its script begins, as by nginx with `fastcgi_request_buffering on`: a script never meets a part of one. With `false` a script may read a body while it arrives, other than that of a POST or one that says it has 32 KB at most: half of the workers at most wait for such clients, and one that breaks off ends for the script like any other, but that `connection_aborted()` says so and that it is shorter than its `Content-Length`. Default: `true`.
    pub request_buffering: Option<bool>,
    /// What becomes of a request whose worker dies before it has answered. `off`: 502, as behind nginx with php-fpm; no request runs twice. `idempotent`: one with the method GET, HEAD, OPTIONS, PUT or DELETE runs once more on another worker. A request that no worker had taken waits for the next one in any case. Default: `off`.
    pub retry: Option<RetryChoice>,
    /// Encoding that static text files say they have, such as `utf-8`: `; charset=` in their Content-Type. Scripts say theirs by PHP's `default_charset`. Default: none, as with nginx.
    pub charset: Option<String>,
    /// How long a worker above the least number may idle before it ends. Default: `10s`.
    #[schemars(with = "Option<String>")]
    pub idle_timeout: Option<Time>,
    /// Switches `X-Sendfile` and `X-Accel-Redirect` of scripts on, and names directories from which the first may send besides the document root, as far as the application's user may read there; `[]` for that alone. What a script sends so is its choice: `deny` and `hidden_files` do not hold for it; dotfiles are sent by `X-Sendfile` alone. Relative to this file. Default: none; both headers are passed on, for a proxy in front that acts on them.
    pub sendfile_roots: Option<OneOrMany>,
    /// php.ini settings, such as `memory_limit = "256M"`; an array is for what php.ini may hold several times: `extension = ["intl", "redis"]`. PHP evaluates a single word (`"On"`) and levels of errors (`"E_ALL & ~E_DEPRECATED"`); all else stands for itself, whatever signs are in it, `${…}` as well. Default: none. Flag: `--ini`.
    pub ini: BTreeMap<String, Setting>,
    /// php.ini settings as `ini`, which nothing that PHP runs may change, neither `ini_set()` nor `.user.ini`: what `php_admin_value` is of php-fpm. They win over `ini`. Default: none.
    pub admin_ini: BTreeMap<String, Setting>,
    /// Names of environment variables that PHP gets from the server's own environment, such as `["APP_*", "DATABASE_URL"]`; `*` at the end stands for anything. They are read with the configuration: those of a restart, not of a reload. `env` wins. `HOME` and `USER` are those of PHP's user, if it has a name, unless they are named in full; `PHP_INI_SCAN_DIR` and `PHPRC` are never among them: they choose ini files, see `php_ini_scan_dir`. Default: none.
    pub inherit_env: Option<OneOrMany>,
    /// Environment variables of PHP, which inherits none but those of `inherit_env`. `PHP_INI_SCAN_DIR` here chooses ini files before `php_ini_scan_dir` does, and `PHPRC` where there is no `php_ini`; scripts see them as well. Default: none. Flag: `--env`.
    pub env: BTreeMap<String, Scalar>,
    /// Names of files that are neither sent nor run, in place of the list in docs/rules.md: a pattern for each name in a path, such as `*.bak`, or one from the document root, such as `/vendor/**/*.php`. `"default"` in the list stands for that list, `[]` is for none; dotfiles (but `.well-known`) and PHP's source are sent by a script's `X-Sendfile` only. Default: `["default"]`.
    pub hidden_files: Option<OneOrMany>,
    /// Pages of the application's own for errors that Hayate answers with, by status, 400 to 599, or `4xx` and `5xx` for all others of these: `{ 404 = "/404.html", 5xx = "/50x.html" }`. Files below the document root of 64 KB at most, read when they are wanted, of any type; rules, `deny` and `hidden_files` do not hold for them here. What a script answers stays as it is, and so do pages that say why in development mode. Default: Hayate's own pages.
    pub error_pages: BTreeMap<String, String>,
    /// What becomes of requests before files and scripts are looked for: `[[app.rule]]`, tried in order. See docs/rules.md.
    pub rule: Vec<Rule>,
}

/// One rule. Of several conditions all have to hold, of a list one; without a condition it is for all requests.
#[derive(Debug, Default, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Rule {
    /// When: the path is this, or below it: `/admin` is for `/admin` and `/admin/x`, not for `/administrator`. Paths of rules begin behind the application's `path`. Default: any.
    pub path: Option<OneOrMany>,
    /// When: the whole path fits a pattern: `*` and `?` stay between slashes, `**` does not, `{css,js}` is one of these. Such as `/**/*.{css,js}`. Default: any.
    pub glob: Option<OneOrMany>,
    /// When: this regular expression finds something in the path, which is decoded; `(?i)` at its beginning ignores case. Its groups are `$1` or `$name` in `rewrite` and `redirect`. Default: any.
    pub regex: Option<OneOrMany>,
    /// When: the method is this one; `GET` is for HEAD as well. Default: any.
    pub method: Option<OneOrMany>,
    /// When: these headers are there, and a regular expression finds something in the value: `{ user-agent = "(?i)badbot" }`. `host` is the name of the host, without its port; its case does not count. Default: none.
    pub header: BTreeMap<String, String>,
    /// When: the visitor's address is in one of these networks, such as `10.0.0.0/8`. Default: any.
    pub address: Option<OneOrMany>,
    /// Networks that get through; others get 403. Default: all.
    pub allow: Option<OneOrMany>,
    /// How often: `{ requests = 5, per = "1s", burst = 10 }`; above, 429 with Retry-After. Default: as often as one likes.
    pub rate: Option<Rate>,
    /// Asks for a password: `{ users = "staff.htpasswd", realm = "Staff" }`. Default: none.
    pub basic_auth: Option<BasicAuth>,
    /// Bytes of a request's body, in place of `limits.body_size`; `0`: no limit. Default: that.
    #[schemars(with = "Option<String>")]
    pub max_body: Option<Size>,
    /// How long PHP may run, in place of `request_timeout`. Default: that.
    #[schemars(with = "Option<String>")]
    pub timeout: Option<Time>,
    /// Headers of the answer, whatever its status: `{ set = { X-Frame-Options = "DENY" }, add = { … }, remove = ["X-Powered-By"] }`. Default: none.
    pub headers: Headers,
    /// `Cache-Control` of the answer in place of what it says, and no `Expires`; of files, redirects and texts of rules: not for errors, nor for what a script answers, which says itself who may keep it (to say it for a script, write `headers`); behind a password, a certificate or `allow` it says `private`. Default: none.
    pub cache_control: Option<String>,
    /// Answers with another path: `/index.php?page=$1`. Rules that follow see that one. The visitor's query is kept behind it; a `?` at the end drops it: `/index.php?page=$1?`. Default: none.
    pub rewrite: Option<String>,
    /// Sends the visitor to a path or a URL: `/new/$1`, `https://example.org$path`. The query as with `rewrite`; `$request_uri`, right behind a host, is path and query as they were asked for. Default: none.
    pub redirect: Option<String>,
    /// Answers with this text, `""` for none, at most 64 KB: `text/plain`, unless `headers` set another Content-Type. Default: none.
    pub respond: Option<String>,
    /// Status of `redirect`: 301, 302, 303, 307 or 308; or of `respond`: 200 to 204 or 400 to 599. Default: `302`, and `200` of `respond`.
    pub status: Option<u16>,
    /// Refuses with this status, 400 to 599, such as 403 or 404. Default: none.
    #[schemars(with = "Option<u16>")]
    pub deny: Option<Refusal>,
    /// Directory whose files answer for what is below `path`; no script runs there. Relative to this file. Default: none.
    pub alias: Option<PathBuf>,
    /// No rule after this one is looked at. Default: `false`.
    pub stop: bool,
}

/// How often.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table such as { requests = 5, per = \"1s\", burst = 10 }")]
pub struct Rate {
    /// The steady rate: so many requests, 1 to 1000000, in `per`, evenly: `5` in `1s` is one in each 200 ms. It allows nothing at once. Default: none; it has to be said.
    pub requests: u32,
    /// That time, `1ms` to `1d`. Default: `1s`.
    #[schemars(with = "Option<String>")]
    pub per: Option<Time>,
    /// So many may come before their moment, 0 to 1000000, as with nginx's `burst` and `nodelay`: a visitor who has waited long enough may send `burst` + 1 requests at once, whatever `requests` is, and gets one of them back each `per` / `requests`. Default: as `requests`.
    pub burst: Option<u32>,
    /// Who is counted as one: `address` (of IPv6 its first 64 bits; requests from proxies of `trusted_proxies` that do not say for whom are not counted), `path` (all visitors together, each path by itself), `all`, or `header:NAME` (its value). Default: `address`.
    pub by: Option<String>,
}

/// Who gets through by a password.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table such as { users = \"staff.htpasswd\" }")]
pub struct BasicAuth {
    /// File of names and bcrypt hashes, as `htpasswd -B` makes it. It may be readable by root alone, and is read at the start and with `hayate reload`. Relative to this file. Default: none; it has to be said.
    pub users: PathBuf,
    /// What browsers show. Default: `restricted`.
    pub realm: Option<String>,
}

/// What is done to the headers of an answer: first `remove`, then `set`, then `add`.
#[derive(Debug, Default, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "a table such as { set = { X-Frame-Options = \"DENY\" } }")]
pub struct Headers {
    /// In place of those of the same name. Default: none.
    pub set: BTreeMap<String, String>,
    /// Beside those of the same name. Default: none.
    pub add: BTreeMap<String, String>,
    /// Names that the answer is not to have. Default: none.
    pub remove: Option<OneOrMany>,
}
