use std::fs;

use super::*;

const RUNTIME: &str = "<?php\n\nuse App\\Kernel;\n\nrequire_once dirname(__DIR__).'/vendor/autoload_runtime.php';\n\n\
                       return static function (array $context): Kernel {\n    return new Kernel($context['APP_ENV'], (bool) $context['APP_DEBUG']);\n};\n";
const LARAVEL_12: &str = "<?php\n\nuse Illuminate\\Foundation\\Application;\nuse Illuminate\\Http\\Request;\n\ndefine('LARAVEL_START', microtime(true));\n\n\
    // Determine if the application is in maintenance mode...\nif (file_exists($maintenance = __DIR__.'/../storage/framework/maintenance.php')) {\n    require $maintenance;\n}\n\n\
    // Register the Composer autoloader...\nrequire __DIR__.'/../vendor/autoload.php';\n\n/** @var Application $app */\n$app = require_once __DIR__.'/../bootstrap/app.php';\n\n\
    $app->handleRequest(Request::capture());\n";
const LARAVEL_8: &str = "<?php\n\nuse Illuminate\\Contracts\\Http\\Kernel;\nuse Illuminate\\Http\\Request;\n\ndefine('LARAVEL_START', microtime(true));\n\n/*\n|---\n| Check If 'The' Application Is Under Maintenance\n*/\n\n\
    if (file_exists($maintenance = __DIR__.'/../storage/framework/maintenance.php')) {\n    require $maintenance;\n}\n\nrequire __DIR__.'/../vendor/autoload.php';\n\n\
    $app = require_once __DIR__.'/../bootstrap/app.php';\n\n$kernel = $app->make(Kernel::class);\n\n$response = $kernel->handle(\n    $request = Request::capture()\n)->send();\n\n\
    $kernel->terminate($request, $response);\n";
const SYMFONY_5: &str = "<?php\n\nuse App\\Kernel;\nuse Symfony\\Component\\Dotenv\\Dotenv;\nuse Symfony\\Component\\ErrorHandler\\Debug;\nuse Symfony\\Component\\HttpFoundation\\Request;\n\n\
    require dirname(__DIR__).'/vendor/autoload.php';\n\n(new Dotenv())->bootEnv(dirname(__DIR__).'/.env');\n\nif ($_SERVER['APP_DEBUG']) {\n    umask(0000);\n\n    Debug::enable();\n}\n\n\
    $kernel = new Kernel($_SERVER['APP_ENV'], (bool) $_SERVER['APP_DEBUG']);\n$request = Request::createFromGlobals();\n$response = $kernel->handle($request);\n$response->send();\n\
    $kernel->terminate($request, $response);\n";

struct Project(tempfile::TempDir, &'static str);

impl Project {
    fn new(framework: Framework, front_controller: &str) -> Project {
        let project = Project(tempfile::tempdir().unwrap(), framework.document_root());
        for file in framework.files() {
            project.write(file, "<?php\n");
        }
        project.write("composer.json", &format!("{{\"require\": {{\"{}\": \"*\"}}}}", framework.package()));
        project.write("vendor/autoload_runtime.php", "");
        project.write(&format!("{}/index.php", project.1), front_controller);
        project.write(".env", "APP_ENV=prod\nAPP_DEBUG=false\n");
        project
    }

    fn write(&self, file: &str, text: &str) {
        let path = self.0.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn look(&self, env: &[(&str, &str)]) -> Finding {
        let root = self.0.path().canonicalize().unwrap();
        let env: Vec<_> = env.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        look(&root, &root.join(self.1), &env)
    }

    fn recognised(&self, env: &[(&str, &str)]) -> Recognised {
        match self.look(env) {
            Finding::Recognised(recognised) => recognised,
            other => panic!("{other:?}"),
        }
    }

    fn unsuited(&self) -> String {
        match self.look(&[]) {
            Finding::Unsuited(why) => why,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn the_front_controllers_that_the_frameworks_come_with() {
    for text in [RUNTIME, SYMFONY_5] {
        let project = Project::new(Framework::Symfony, text);
        project.write(
            "composer.lock",
            r#"{"packages": [{"name": "symfony/framework-bundle", "version": "v7.3.2"}]}"#,
        );
        assert_eq!(project.recognised(&[]).name(), "Symfony 7.3.2");
        assert_eq!(project.recognised(&[]).debug, None);
    }
    for text in [LARAVEL_8, LARAVEL_12] {
        let project = Project::new(Framework::Laravel, text);
        assert_eq!(project.recognised(&[]).name(), "Laravel");
    }
}

#[test]
fn a_front_controller_with_a_mind_of_its_own_is_left_to_classic_mode() {
    let storage = LARAVEL_12.replace("$app->handle", "$app->useStoragePath('/tmp');\n$app->handle");
    let why = Project::new(Framework::Laravel, &storage).unsuited();
    assert!(why.contains("does more than to start it ($app->useStoragePath('/tmp');"), "{why}");
    let proxies =
        SYMFONY_5.replace("$kernel = new", "Request::setTrustedProxies(['10.0.0.1'], 1);\n$kernel = new");
    assert!(Project::new(Framework::Symfony, &proxies).unsuited().contains("does more than to start it"));
    let host = RUNTIME.replace("return static", "$_ENV['X'] = $_SERVER['HTTP_HOST'] ?? '';\nreturn static");
    assert!(Project::new(Framework::Symfony, &host).unsuited().contains("depends on the request (HTTP)"));
    // Also what only variables of a request have been known by elsewhere, and what a front controller does besides.
    for word in [
        "'HTTPS'",
        "DOCUMENT_URI",
        "REDIRECT_URL",
        "ORIG_PATH_INFO",
        "SSL_CLIENT_VERIFY",
        "GATEWAY_INTERFACE",
        "HAYATE_WARMUP",
    ]
    .map(|name| format!("$x = getenv({name});"))
    .into_iter()
    .chain(
        ["filter_input(1, 'a');", "header('X: y');", "session_start();", "ob_start();", "exit;", "die();"]
            .map(String::from),
    ) {
        let asks = RUNTIME.replace("return static", &format!("{word}\nreturn static"));
        assert!(
            Project::new(Framework::Symfony, &asks).unsuited().contains("depends on the request"),
            "{word}"
        );
    }
    let request = RUNTIME.replace("array $context", "Request $request, array $context");
    assert!(Project::new(Framework::Symfony, &request).unsuited().contains("array $context alone"));
}

#[test]
fn what_a_front_controller_of_symfony_runtime_asks_of_its_context() {
    for (body, what) in [
        ("return Kernel::forTenant($context);", "$context for more than a name that is written down"),
        ("return new Kernel(...$context);", "$context for more than"),
    ] {
        let text =
            RUNTIME.replace("return new Kernel($context['APP_ENV'], (bool) $context['APP_DEBUG']);", body);
        assert!(text.contains(body));
        let why = Project::new(Framework::Symfony, &text).unsuited();
        let expected = format!("its public/index.php:8 may ask for what a request brings ({what}");
        assert!(why.contains(&expected), "{why}");
    }
    let https = RUNTIME.replace("$context['APP_ENV']", "$context[\"HTTPS\"] ?? ''");
    assert!(Project::new(Framework::Symfony, &https).unsuited().contains("depends on the request (HTTP)"));
    let within = RUNTIME
        .replace("return static", "function a($all) {\nreturn static")
        .replace("};", "};\n}\nreturn a(...);");
    assert!(Project::new(Framework::Symfony, &within).unsuited().contains("returns no closure"));
    let quotes = RUNTIME
        .replace('\'', "\"")
        .replace("dirname(__DIR__).\"", "dirname(__DIR__).'")
        .replace("runtime.php\"", "runtime.php'");
    Project::new(Framework::Symfony, &quotes).recognised(&[]);
}

/// The boot script would do what it leaves out: then another application answers.
#[test]
fn a_front_controller_that_leaves_out_what_its_framework_does_is_left_to_classic_mode() {
    for (framework, text, left_out) in [
        (Framework::Symfony, SYMFONY_5, "require dirname(__DIR__).'/vendor/autoload.php';"),
        (Framework::Symfony, SYMFONY_5, "$response->send();"),
        (Framework::Symfony, SYMFONY_5, "$kernel->terminate($request, $response);"),
        (Framework::Laravel, LARAVEL_12, "define('LARAVEL_START', microtime(true));"),
        (Framework::Laravel, LARAVEL_8, "$kernel->terminate($request, $response);"),
        (Framework::Laravel, LARAVEL_8, "->send()"),
    ] {
        assert!(text.contains(left_out), "{left_out}");
        let why = Project::new(framework, &text.replacen(left_out, "", 1)).unsuited();
        assert!(why.contains("is not the framework's own: it leaves out "), "{why}");
    }
    let twice = SYMFONY_5.replace("$response->send();", "$response->send();\n$response->send();");
    assert!(Project::new(Framework::Symfony, &twice).unsuited().contains("is not the framework's own"));
    let early = LARAVEL_12.replace("define('LARAVEL_START', microtime(true));", "")
        + "define('LARAVEL_START', microtime(true));";
    assert!(Project::new(Framework::Laravel, &early).unsuited().contains("is not the framework's own"));
    // These the boot script does only where they stand there.
    let open = "if (file_exists($maintenance = __DIR__.'/../storage/framework/maintenance.php')) {\n    require $maintenance;\n}";
    assert!(LARAVEL_12.contains(open));
    Project::new(Framework::Laravel, &LARAVEL_12.replace(open, "")).recognised(&[]);
    let plain = SYMFONY_5.replace("(new Dotenv())->bootEnv(dirname(__DIR__).'/.env');", "");
    Project::new(Framework::Symfony, &plain).recognised(&[]);
    let plain =
        SYMFONY_5.replace("if ($_SERVER['APP_DEBUG']) {\n    umask(0000);\n\n    Debug::enable();\n}", "");
    Project::new(Framework::Symfony, &plain).recognised(&[]);
}

/// Where white space and comments keep two words apart, they are two.
#[test]
fn a_function_whose_name_begins_with_a_keyword_is_not_taken_for_it() {
    for (framework, text, ours, other) in [
        (Framework::Symfony, SYMFONY_5, "new Kernel(", "newKernel("),
        (Framework::Symfony, SYMFONY_5, "new Dotenv()", "newDotenv()"),
        (Framework::Symfony, SYMFONY_5, "require dirname(", "requiredirname("),
        (Framework::Laravel, LARAVEL_12, "require_once __DIR__", "require_once__DIR__"),
        (Framework::Yii, YII, "(new yii\\web\\Application(", "(newyii\\web\\Application("),
    ] {
        assert!(text.contains(ours), "{ours}");
        Project::new(framework, &text.replace(ours, &ours.replace(' ', " /* a */\n"))).recognised(&[]);
        let why = Project::new(framework, &text.replace(ours, other)).unsuited();
        assert!(why.contains("does more than to start it") || why.contains("does not end with"), "{why}");
    }
}

#[test]
fn classes_of_the_same_name_are_not_taken_for_the_frameworks() {
    for (framework, text, class, other) in [
        (Framework::Laravel, LARAVEL_12, "Illuminate\\Http\\Request", "App\\Http\\Request"),
        (
            Framework::Laravel,
            LARAVEL_8,
            "Illuminate\\Contracts\\Http\\Kernel",
            "App\\Http\\GuardKernel as Kernel",
        ),
        (Framework::Symfony, SYMFONY_5, "App\\Kernel", "App\\ShopKernel as Kernel"),
        (
            Framework::Symfony,
            SYMFONY_5,
            "Symfony\\Component\\HttpFoundation\\Request",
            "App\\{Request, Other}",
        ),
        (Framework::Symfony, SYMFONY_5, "Symfony\\Component\\Dotenv\\Dotenv", "function App\\dirname"),
    ] {
        let import = format!("use {class};");
        assert!(text.contains(&import), "{text}");
        let why = Project::new(framework, &text.replace(&import, &format!("use {other};"))).unsuited();
        let start = other.replace(", ", ",");
        assert!(why.contains(&format!("does more than to start it (use {start};")), "{why}");
        let why = Project::new(framework, &text.replace(&import, "")).unsuited();
        let short = class.rsplit('\\').next().unwrap();
        assert!(why.contains(&format!("does not say which class it means by {short}")), "{why}");
    }
}

#[test]
fn settings_that_classic_mode_alone_applies_are_not_lost() {
    let project = Project::new(Framework::Symfony, RUNTIME);
    project.write("public/.user.ini", "auto_prepend_file = /srv/firewall.php");
    assert!(project.unsuited().contains("public/.user.ini has settings for its scripts"));
}

#[test]
fn a_front_controller_of_which_only_php_knows_what_is_code_is_left_to_classic_mode() {
    assert!(only("use function A\\b;exec('x');", &LARAVEL).is_err());
    let closed = LARAVEL_12.replace("// Register", "// note ?><?php require 'firewall.php';\n// Register");
    let why = Project::new(Framework::Laravel, &closed).unsuited();
    assert!(why.contains("its public/index.php has text after ?>"), "{why}");
    let heredoc = SLIM.replace("$app = new", "$text = <<<X\n/*\nX;\n$app = new");
    let why = Project::new(Framework::Slim, &heredoc).unsuited();
    assert!(why.contains("its public/index.php has a heredoc (<<<)"), "{why}");
    Project::new(Framework::Slim, &format!("{SLIM}?>\n")).recognised(&[]);
}

#[test]
fn what_is_missing_is_named() {
    let project = Project::new(Framework::Symfony, RUNTIME);
    fs::remove_file(project.0.path().join("bin/console")).unwrap();
    assert!(project.unsuited().contains("it has no bin/console"));
    let project = Project::new(Framework::Symfony, RUNTIME);
    fs::remove_file(project.0.path().join("vendor/autoload_runtime.php")).unwrap();
    assert!(project.unsuited().contains("vendor/autoload_runtime.php"));
    let root = project.0.path().canonicalize().unwrap();
    assert!(matches!(look(&root, &root, &[]), Finding::Unsuited(why) if why.contains("document root")));
    project.write("composer.json", r#"{"require": {"symfony/console": "*"}}"#);
    assert_eq!(project.look(&[]), Finding::Nothing);
    let library = Project::new(Framework::Symfony, RUNTIME);
    library.write("composer.json", r#"{"require-dev": {"symfony/framework-bundle": "*"}}"#);
    assert_eq!(library.look(&[]), Finding::Nothing);
}

#[test]
fn a_composer_json_that_cannot_be_read_is_not_one_that_requires_nothing() {
    let project = Project::new(Framework::Laravel, LARAVEL_12);
    project.write("composer.json", "{\n  \"require\": {\"laravel/framework\": \"*\",}\n}");
    let Finding::Unreadable(why) = project.look(&[]) else { panic!("{:?}", project.look(&[])) };
    assert!(why.contains("composer.json is no JSON: trailing comma at line 2"), "{why}");
    assert!(why.contains("composer validate"), "{why}");
    assert_eq!(document_root(project.0.path()), Ok(None), "it has no other directory that may be meant");
    let yii = Project::new(Framework::Yii, YII);
    yii.write("composer.json", "{");
    let why = document_root(yii.0.path()).unwrap_err();
    assert!(why.contains("is no JSON") && why.contains("document_root = \"web\""), "{why}");
    fs::remove_file(yii.0.path().join("composer.json")).unwrap();
    assert_eq!((yii.look(&[]), document_root(yii.0.path())), (Finding::Nothing, Ok(None)));
}

#[test]
fn of_several_frameworks_that_are_required_the_one_is_taken_that_is_run_so() {
    let both = "{\"require\": {\"laravel/framework\": \"*\", \"symfony/framework-bundle\": \"*\"}}";
    let project = Project::new(Framework::Symfony, RUNTIME);
    project.write("composer.json", both);
    let recognised = project.recognised(&[]);
    assert_eq!(recognised.framework, Framework::Symfony, "there is no artisan");
    assert!(recognised.evidence.ends_with("; it requires laravel/framework as well, which is not looked at"));
    let project = Project::new(Framework::Laravel, LARAVEL_12);
    project.write("composer.json", both);
    let recognised = project.recognised(&[]);
    assert_eq!(recognised.framework, Framework::Laravel);
    assert!(recognised.evidence.contains("requires symfony/framework-bundle as well"));
    project.write("public/index.php", "<?php echo 1;");
    assert_eq!(
        project.unsuited(),
        "this is a Laravel project, but its public/index.php does more than to start it (echo 1; …); \
         it requires symfony/framework-bundle as well, but it has no bin/console"
    );
    let mezzio = Project::new(Framework::Mezzio, &MEZZIO.replace("})();", "").replace("(function () {", ""));
    mezzio.write("composer.json", "{\"require\": {\"slim/slim\": \"*\", \"mezzio/mezzio\": \"*\"}}");
    assert_eq!(
        mezzio.recognised(&[]).framework,
        Framework::Mezzio,
        "both would do by their front controller"
    );
}

#[test]
fn debug_mode_of_symfony() {
    let project = Project::new(Framework::Symfony, RUNTIME);
    let debug = |env: &[(&str, &str)]| project.recognised(env).debug;
    project.write(".env", "APP_ENV=dev\n");
    assert_eq!(debug(&[]).unwrap(), "APP_ENV is dev");
    assert_eq!(debug(&[("APP_ENV", "prod")]), None);
    assert_eq!(debug(&[("APP_DEBUG", "0")]), None);
    project.write(".env.local", "export APP_ENV=\"prod\" # live\n");
    assert_eq!(debug(&[]), None);
    project.write(".env.prod.local", "APP_DEBUG=1\n");
    assert_eq!(debug(&[]).unwrap(), "APP_DEBUG is 1");
    project.write(".env.local", "APP_ENV=${STAGE}\n");
    assert!(debug(&[]).unwrap().contains("not clear"));
    project.write(".env.local.php", "<?php return array (\n  'APP_ENV' => 'prod',\n);");
    assert_eq!(debug(&[]), None);
}

#[test]
fn debug_mode_of_laravel() {
    let project = Project::new(Framework::Laravel, LARAVEL_12);
    let debug = |env: &[(&str, &str)]| project.recognised(env).debug;
    assert_eq!(debug(&[]), None);
    assert_eq!(debug(&[("APP_DEBUG", "true")]).unwrap(), "APP_DEBUG is true");
    project.write(".env", "APP_ENV=local\nAPP_DEBUG=true\n");
    assert_eq!(debug(&[]).unwrap(), "APP_DEBUG is true");
    assert_eq!(debug(&[("APP_ENV", "production"), ("APP_DEBUG", "false")]), None);
    project.write(".env.staging", "APP_DEBUG=false\n");
    assert_eq!(debug(&[("APP_ENV", "staging")]), None);
}

const SLIM: &str = "<?php\n\nuse Slim\\App;\n\nrequire __DIR__.'/../vendor/autoload.php';\n\n$app = new App();\n\
    $app->get('/', function ($request, $response) { return $response->write($_SERVER['REQUEST_URI']); });\n// and off\n$app->run();\n";

#[test]
fn a_front_controller_that_ends_with_run_is_run_up_to_there() {
    let slim = Project::new(Framework::Slim, SLIM);
    assert_eq!(
        slim.recognised(&[]).evidence,
        "composer.json requires slim/slim, public/index.php ends with run()"
    );
    let lumen = "<?php\n\n$app = require __DIR__.'/../bootstrap/app.php';\n\n$app->run();\n";
    let lumen = Project::new(Framework::Lumen, lumen);
    assert_eq!(lumen.recognised(&[]).framework.run(), Some("Laravel\\Lumen\\Concerns\\RoutesRequests::run"));
    lumen.write(".env", "APP_DEBUG=true\n");
    assert_eq!(lumen.recognised(&[]).debug.as_deref(), Some("APP_DEBUG is true"));
}

#[test]
fn a_front_controller_that_does_more_after_run_is_left_to_classic_mode() {
    for odd in [
        SLIM.replace("$app->run();", "$response = $app->handle($request);"),
        SLIM.replace("$app->run();", "$app->run();\necho 'bye';"),
        SLIM.replace("$app->run();", "$app->run();\n$app->run();"),
        SLIM.replace("$app->run();", "$response = $app->run();"),
        SLIM.replace("$app->run();", "$app->run(true);"),
        SLIM.replace("$app->run();", "// $app->run();"),
    ] {
        let why = Project::new(Framework::Slim, &odd).unsuited();
        assert!(why.contains("does not end with $app->run(), called once"), "{why}");
    }
}

const CODEIGNITER: &str = "<?php\n\nuse CodeIgniter\\Boot;\nuse Config\\Paths;\n\n$minPhpVersion = '8.2';\n\
    define('FCPATH', __DIR__ . DIRECTORY_SEPARATOR);\nrequire FCPATH . '../app/Config/Paths.php';\n$paths = new Paths();\n\
    require $paths->systemDirectory . '/Boot.php';\n\nexit(Boot::bootWeb($paths));\n";
const CAKEPHP_INDEX: &str = "<?php\nrequire dirname(__DIR__) . '/vendor/autoload.php';\n\n\
    $server = new Server(new Application(dirname(__DIR__) . '/config'));\n\n$server->emit($server->run());\n";
const YII: &str = "<?php\n\nrequire __DIR__ . '/../vendor/autoload.php';\nrequire __DIR__ . '/../vendor/yiisoft/yii2/Yii.php';\n\
    $config = require __DIR__ . '/../config/web.php';\n\n(new yii\\web\\Application($config))->run();\n";
const MEZZIO: &str = "<?php\nchdir(dirname(__DIR__));\nrequire 'vendor/autoload.php';\n(function () {\n    $container = require 'config/container.php';\n\
    $app = $container->get(Application::class);\n    $app->run();\n})();\n";

const LAMINAS: &str = "<?php\nchdir(dirname(__DIR__));\ninclude __DIR__ . '/../vendor/autoload.php';\n\
    $container = require __DIR__ . '/../config/container.php';\n$app = $container->get('Application');\n$app->run();\n";

/// Each is found where its framework has it, run up to a method of its class, and left alone when it does something else in the end.
#[test]
fn front_controllers_that_are_run_up_to_the_frameworks_own_method() {
    for (framework, text, end) in [
        (Framework::CodeIgniter, CODEIGNITER, "exit(Boot::bootWeb($paths));"),
        (Framework::CakePhp, CAKEPHP_INDEX, "$server->emit($server->run());"),
        (Framework::Yii, YII, "(new yii\\web\\Application($config))->run();"),
        (Framework::Mezzio, MEZZIO, "$app->run();"),
        (Framework::Laminas, LAMINAS, "$app->run();"),
    ] {
        let made = |text: &str| {
            let project = Project::new(framework, text);
            project.write(
                "app/Config/App.php",
                "<?php class App { /* $_SERVER['HTTP_HOST'] */ public $uriProtocol = 'REQUEST_URI'; }",
            );
            project
        };
        let project = made(text);
        assert_eq!(project.recognised(&[]).framework, framework);
        assert_eq!(project.recognised(&[]).debug, None);
        assert!(project.recognised(&[]).boot_script().is_ok());
        let public = (framework.document_root() != "public").then(|| framework.document_root());
        assert_eq!(document_root(project.0.path()), Ok(public));
        for odd in [
            text.replace(end, &format!("{end}\necho 'bye';")),
            text.replace(end, &format!("$left = {end}")),
            text.replace(end, &format!("{end}\n{end}")),
            text.replace(end, &format!("// {end}\n")),
        ] {
            let why = made(&odd).unsuited();
            assert!(why.contains("does not end with"), "{framework}: {why}");
        }
    }
    assert_eq!(Framework::CakePhp.to_string(), "CakePHP");
}

#[test]
fn configuration_of_codeigniter_and_cakephp_that_looks_at_a_request() {
    let project = Project::new(Framework::CodeIgniter, CODEIGNITER);
    project.write(
        "app/Config/App.php",
        "<?php class App { function __construct() { $this->baseURL = $_SERVER['HTTP_HOST']; } }",
    );
    assert!(project.unsuited().contains("its app/Config/App.php depends on the request ('HTTP_HOST' …)"));
    project.write("app/Config/App.php", "<?php class App { public $baseURL = 'http://a.example/'; }");
    project.recognised(&[]);
    for asks in [
        "$all = $_SERVER;",
        "$key = 'HTTP_HOST'; $_SERVER[$key];",
        "foreach ($_SERVER as $name => $value);",
        "filter_input(INPUT_SERVER, 'HTTP_HOST');",
        "getenv(\"HTTP_HOST\");",
        "getenv();",
        "service('session');",
        "\\Config\\Services::request()->getLocale();",
        "file_get_contents('php://input');",
        "current_url();",
        "$a = <<<X\n/*\nX;\n$b = env('HTTP_HOST');",
        "helper('cookie'); get_cookie('lang');",
    ] {
        for file in ["app/Config/Shop.php", "app/Config/Boot/production.php", "app/Config/Shop/Prices.php"] {
            project.write(file, &format!("<?php {asks}"));
            assert!(project.unsuited().contains(&format!("its {file} depends on the request (")), "{asks}");
            project.write(file, "<?php $_SERVER['APP_NAME'];");
        }
    }
    project.recognised(&[]);
    let project = Project::new(Framework::CakePhp, CAKEPHP_INDEX);
    let skeleton = "<?php\n$fullBaseUrl = Configure::read('App.fullBaseUrl');\nif (!$fullBaseUrl) {\n    $trustProxy = false;\n\n    $s = null;\n\
        if (env('HTTPS') || ($trustProxy && env('HTTP_X_FORWARDED_PROTO') === 'https')) {\n        $s = 's';\n    }\n    $httpHost = env('HTTP_HOST');\n    if (isset($httpHost)) {\n        $fullBaseUrl = 'http' . $s . '://' . $httpHost;\n    }\n    unset($httpHost, $s);\n}\n\
        if ($fullBaseUrl) {\n    Router::fullBaseUrl($fullBaseUrl);\n}\nunset($fullBaseUrl);\n";
    project.write("config/bootstrap.php", skeleton);
    project.write("config/routes.php", "<?php env('HTTP_HOST');");
    project.recognised(&[]);
    let later = "<?php\n$fullBaseUrl = Configure::read('App.fullBaseUrl');\nif (!$fullBaseUrl) {\n    $httpHost = env('HTTP_HOST');\n\n    /* Development mode */\n\
        if ($httpHost) {\n        $s = null;\n        if (env('HTTPS') || env('HTTP_X_FORWARDED_PROTO') === 'https') {\n            $s = 's';\n        }\n\
        $fullBaseUrl = 'http' . $s . '://' . $httpHost;\n    }\n    unset($httpHost, $s);\n}\n";
    project.write("config/bootstrap.php", later);
    assert!(project.unsuited().contains("trusts X-Forwarded-Proto"));
    project.write("src/Middleware/HostHeaderMiddleware.php", "<?php");
    project.recognised(&[]);
    project.write("config/bootstrap.php", &later.replace("    unset", "    $tenant = $httpHost;\n    unset"));
    assert!(project.unsuited().contains("config/bootstrap.php depends on the request ($httphost"));
    project.write("config/bootstrap.php", &skeleton.replace("= false", "= true"));
    assert!(project.unsuited().contains("trusts X-Forwarded-Proto"));
    for (old, new, word) in [
        (
            "    if (isset",
            "    Configure::write('Tenant', strtok((string) $httpHost, '.'));\n    if (isset",
            "$httphost",
        ),
        ("unset($httpHost, $s);", "unset($httpHost);", "$httphost"),
        ("$s = null;", "$s = env('HTTP_HOST');", "$httphost"),
        ("unset($fullBaseUrl);", "if (env('HTTPS')) { $s = 's'; }", "'HTTPS'"),
    ] {
        project.write("config/bootstrap.php", &skeleton.replace(old, new));
        let why = project.unsuited();
        assert!(
            why.contains(&format!("config/bootstrap.php depends on the request ({word} …)")),
            "{new}: {why}"
        );
    }
    project.write("config/bootstrap.php", &format!("{skeleton}$lang = env('HTTP_ACCEPT_LANGUAGE');"));
    assert!(
        project
            .unsuited()
            .contains("its config/bootstrap.php depends on the request ('HTTP_ACCEPT_LANGUAGE' …)")
    );
}

/// One that many applications' configurations are read together with must not keep the others waiting.
#[test]
fn more_configuration_than_is_searched_is_left_to_classic_mode() {
    let project = Project::new(Framework::CodeIgniter, CODEIGNITER);
    for n in 0..501 {
        project.write(&format!("app/Config/Shop{n}.php"), "<?php\n");
    }
    let why = project.unsuited();
    assert!(why.contains("it has more configuration than is searched"), "{why}");
    assert!(why.contains("is file 501, allowed are 500 files"), "{why}");
    let project = Project::new(Framework::Laminas, LAMINAS);
    for n in 0..501 {
        project.write(&format!("module/Shop{n}/Module.php"), "<?php\n");
    }
    let why = project.unsuited();
    assert!(why.contains("is file 501, allowed are 500 files"), "{why}");
}

#[test]
fn a_module_of_laminas_that_looks_at_the_request_as_it_is_bootstrapped() {
    let project = Project::new(Framework::Laminas, LAMINAS);
    project.write(
        "module/Shop/src/Module.php",
        "<?php class Module { function onBootstrap($e) { $e->getApplication(); } }",
    );
    project.recognised(&[]);
    for (asks, word) in [
        ("$e->getRequest()->getUri()", "->getRequest("),
        ("$e->getApplication()->getServiceManager()->get(\"Request\")", "get('Request')"),
        ("$e->getParam('request')->getUri()", "getParam('request'"),
        ("$e->getParams()['request']", "->getParams("),
        ("(new Request())->getCookie()", "request("),
    ] {
        let module = format!("<?php class Module {{ function onBootstrap($e) {{ {asks}; }} }}");
        project.write("module/Shop/src/Module.php", &module);
        let why = project.unsuited();
        assert!(
            why.contains(&format!("its module/Shop/src/Module.php depends on the request ({word}")),
            "{why}"
        );
    }
}

#[test]
fn debug_mode_of_the_others() {
    let project = Project::new(Framework::CodeIgniter, CODEIGNITER);
    project.write("app/Config/App.php", "<?php");
    project.write(".env", "CI_ENVIRONMENT = development\n");
    assert_eq!(project.recognised(&[]).debug.unwrap(), "CI_ENVIRONMENT is development");
    assert_eq!(project.recognised(&[("CI_ENVIRONMENT", "production")]).debug, None);
    project.write(".env", "CI_ENVIRONMENT =\nCI_ENVIRONMENT = development\nCI_ENVIRONMENT = production\n");
    assert_eq!(project.recognised(&[]).debug.unwrap(), "CI_ENVIRONMENT is development", "the first wins");
    project.write(".env", "CI_ENVIRONMENT = production\nCI_ENVIRONMENT = development\n");
    assert_eq!(project.recognised(&[]).debug, None);
    let project = Project::new(Framework::CakePhp, CAKEPHP_INDEX);
    let debug = |env: &[(&str, &str)]| project.recognised(env).debug;
    project.write(
        "config/app.php",
        "<?php return [ 'debug' => filter_var(env('DEBUG', false), FILTER_VALIDATE_BOOLEAN), ];",
    );
    assert_eq!(debug(&[]), None);
    assert_eq!(debug(&[("DEBUG", "true")]).unwrap(), "DEBUG is true");
    project.write("config/.env", "export DEBUG=\"true\"\n");
    assert_eq!(debug(&[]), None, "nobody reads it");
    project.write("config/bootstrap.php", "<?php (new Dotenv\\Loader([CONFIG . '.env']))->parse()->toEnv();");
    assert_eq!(debug(&[]).unwrap(), "DEBUG is true");
    assert_eq!(debug(&[("DEBUG", "false")]), None);
    project.write("config/app_local.php", "<?php return [\"debug\" => TRUE];");
    assert_eq!(debug(&[("DEBUG", "false")]).unwrap(), "config/app_local.php says so");
    project.write("config/app_local.php", "<?php return ['debug' => true, ];");
    assert_eq!(debug(&[("DEBUG", "false")]).unwrap(), "config/app_local.php says so");
    project.write("config/app_local.php", "<?php return ['debug' => is_file('debug'), ];");
    assert!(debug(&[]).unwrap().contains("not clear"));
    let index = format!("<?php\ndefined('YII_DEBUG') or define('YII_DEBUG', true);\n{}", &YII[5..]);
    let project = Project::new(Framework::Yii, &index);
    assert_eq!(project.recognised(&[]).debug.unwrap(), "web/index.php defines YII_DEBUG");
    for defines in ["define(\"YII_DEBUG\", true)", "DEFINE('YII_DEBUG', getenv('DEBUG') === '1')"] {
        let project = Project::new(Framework::Yii, &index.replace("define('YII_DEBUG', true)", defines));
        assert!(project.recognised(&[]).debug.is_some(), "{defines}");
    }
    let project = Project::new(Framework::Yii, &index.replace("true", "false"));
    assert_eq!(project.recognised(&[]).debug, None);
    let project = Project::new(Framework::Mezzio, MEZZIO);
    project.write("config/development.config.php", "<?php");
    assert!(project.recognised(&[]).debug.unwrap().contains("development.config.php"));
}
