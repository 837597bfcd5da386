<?php

/**
 * Runs a Laminas MVC project's own public/index.php up to Application::run(), once, and then that for each request; the
 * worker script for projects of Laminas MVC that `hayate serve` recognises (see front_controller.php).
 *
 * The application is made with a request and bootstraps its modules with it: an empty one here, which notes whether
 * somebody asks it something (laminas_request.php). Each request gets one of its own, in the application, its event and
 * the service manager, before anything is routed.
 */

declare(strict_types=1);

namespace Hayate\Boot;

use Laminas\Mvc\Application;

/** By what a module, as it is bootstrapped, gets at a session. */
const ASKS = ['Laminas\\Session\\SessionManager::start', 'Laminas\\Session\\AbstractContainer::__construct'];

/** Whether what has run so far of the project's own makes a request by itself; the file that does. */
function maker_of_requests(): ?string
{
    foreach (array_filter(get_included_files(), is_own(...)) as $file) {
        $text = php_strip_whitespace($file);
        preg_match('~\\\\PhpEnvironment\\\\Request(?:\s+as\s+(\w+))?\s*[;,}]~i', $text, $imported);
        $names = ['\\\\?(?:\w+\\\\)*PhpEnvironment\\\\Request', ...$imported ? [$imported[1] ?? 'Request'] : []];
        if (preg_match('~\bnew\s+(?:'.implode('|', $names).')\b(?!\\\\)~i', $text)) {
            return $file;
        }
    }

    return null;
}

function prepare(Application $app): \Closure
{
    look_at_calls(ASKS);
    if (null !== $why = MvcRequest::asked($app->getRequest())) {
        not_for_all($why);
    }
    if (null !== $file = maker_of_requests()) {
        not_for_all("$file looks at the request (it makes one by itself) before there is one, and would do so once for all visitors");
    }
    $renew = (function (): void {
        $services = $this->serviceManager;
        $allowed = $services->getAllowOverride();
        $services->setAllowOverride(true);
        $services->setService('Request', $services->build('Request'));
        $services->setAllowOverride($allowed);
        $this->request = $services->get('Request');
        $this->event->setRequest($this->request);
    })->bindTo($app, Application::class);

    $request = \WeakReference::create($app->getRequest());
    $renew();
    gc_collect_cycles();
    if (null !== $request->get()) {
        not_for_all('what a module does as it is bootstrapped looks at the request: it keeps the one that is empty, and would ask it in all requests');
    }

    return static function () use ($app, $renew): void {
        $renew();
        $app->run();
    };
}

require __DIR__.'/laminas_request.php';
require __DIR__.'/front_controller.php';
