<?php
/*
 * A boot that leaves behind what the end of a request has to deal with: objects with destructors, suspended generators
 * and fibers, buffers, shutdown functions. Each request does what `do` says; its answer, and what the directory of
 * $_SERVER['OUT'] holds in the end, tell what ran, and in which order. Under php-fpm the script boots for each request.
 */
declare(strict_types=1);

define('OUT', (string) getenv('OUT'));

function hand_in(string $what): void
{
    file_put_contents(OUT . '/handed-in', $what . "\n", FILE_APPEND);
}

class Noisy
{
    public mixed $held = null;

    public function __construct(public string $name, public ?Closure $end = null)
    {
    }

    public function __destruct()
    {
        echo "[$this->name]";
        hand_in($this->name);
        $this->end === null || ($this->end)();
    }
}

final class Quiet
{
    public mixed $held = null;
}

final class Secret
{
    private function __destruct()
    {
        echo 'never';
    }
}

final class Buffer
{
    private array $lines = [];

    public function add(string $line): void
    {
        $this->lines[] = $line;
    }

    public function __destruct()
    {
        foreach ($this->lines as $line) {
            hand_in($line);
        }
    }
}

/** A stream whose writer hears of its end. */
final class Slate
{
    public $context;
    private string $written = '';

    public function stream_open(): bool
    {
        return true;
    }

    public function stream_write(string $data): int
    {
        $this->written .= $data;
        return strlen($data);
    }

    public function stream_close(): void
    {
        hand_in("slate: $this->written");
    }
}
stream_wrapper_register('slate', Slate::class);

/** Registers its function once, as libraries do: Guzzle's task queue. */
final class Tasks
{
    private array $tasks = [];
    private static ?self $it = null;

    public static function it(): self
    {
        return self::$it ??= new self();
    }

    private function __construct()
    {
        register_shutdown_function(fn() => $this->run());
    }

    public function add(string $task): void
    {
        $this->tasks[] = $task;
    }

    private function run(): void
    {
        while (null !== $task = array_shift($this->tasks)) {
            hand_in("task: $task");
            echo "(task: $task)";
        }
    }
}

/** Of several objects of one class each registers functions of its own, when it is first used. */
final class Rows
{
    private array $rows = [];
    private static array $all = [];

    public static function of(string $name): self
    {
        return self::$all[$name] ??= new self($name);
    }

    /** One that nobody keeps: each request makes its own. */
    public static function fresh(): void
    {
        new self('fresh');
    }

    private function __construct(private string $name)
    {
        $row = $this;
        register_shutdown_function([$this, 'run']);
        register_shutdown_function(fn() => $this->handIn('arrow'));
        register_shutdown_function(static fn() => $row->handIn('static'));
        register_shutdown_function('hand_in_rows', $this);
        register_shutdown_function('hand_in_all_rows', [$this]);
    }

    public function add(string $row): void
    {
        $this->rows[] = $row;
    }

    public function run(): void
    {
        $this->handIn('method');
    }

    public function handIn(string $way): void
    {
        foreach ($this->rows as $row) {
            hand_in("row of {$this->name}, $way: $row");
        }
    }
}

function hand_in_rows(Rows $rows): void
{
    $rows->handIn('argument');
}

function hand_in_all_rows(array $all): void
{
    array_map(static fn(Rows $rows) => $rows->handIn('array'), $all);
}

final class All
{
    public static mixed $static;
    public static ?Generator $generator = null;
    public static ?Generator $other = null;
    public static ?Fiber $fiber = null;
    public static ?Noisy $made = null;
    public static ?Buffer $buffer = null;
}

function suspended(string $name): Generator
{
    try {
        yield 1;
        yield 2;
    } finally {
        echo "[finally $name]";
        hand_in("finally $name");
    }
}

$first = new Quiet();
$first->held = new Noisy('held by the first');
$alone = new Noisy('alone');
$captured = new Noisy('captured');
$shared = new Noisy('shared');
All::$static = new Noisy('static');
All::$static->held = $shared;
$cycle = new Noisy('cycle');
$cycle->held = $cycle;
$inner = new Noisy('inner');
$outer = new Noisy('outer');
$outer->held = $inner;
unset($inner);
$secret = new Secret();
$array = [new Noisy('of an array')];
$reference = new Noisy('of a reference');
$same = &$reference;
All::$generator = suspended('generator');
All::$generator->current();
All::$other = suspended('never begun');
All::$fiber = new Fiber(function (): void {
    $held = new Noisy('held by the fiber');
    try {
        Fiber::suspend();
    } finally {
        echo '[finally fiber]';
        hand_in('finally fiber');
    }
});
All::$fiber->start();
$object = new Quiet();
$map = new WeakMap();
$map[$object] = new Noisy('value of the map');
$weak = WeakReference::create($object);
All::$buffer = new Buffer();
$file = fopen(OUT . '/of-the-boot', 'a');
$gz = gzopen(OUT . '/lines.gz', 'a');
$slate = fopen('slate://', 'w');
$filtered = fopen(OUT . '/filtered', 'a');
stream_filter_append($filtered, 'convert.base64-encode', STREAM_FILTER_WRITE);
final class Writer
{
    public function __destruct()
    {
        fwrite($GLOBALS['file'], "by a destructor\n");
    }
}
All::$static->writer = new Writer();
$pair = getenv('PAIR') ? stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0) : null;
register_shutdown_function(function (): void {
    echo '(shutdown of the boot)';
});

function serve(Noisy $captured): void
{
    $local = new Noisy('local');
    while (hayate_handle_request(function () use ($captured): void {
        if (isset($_SERVER['HAYATE_WARMUP'])) {
            // What does not belong to a visitor: an object made at first use, a function registered once.
            All::$made ??= new Noisy('made at first use');
            Tasks::it();
            Rows::fresh();
            Rows::of('warm');
            register_shutdown_function(fn() => hand_in('of each request'));
            return;
        }
        All::$made ??= new Noisy('made at first use');
        Tasks::it();
        Rows::fresh();
        Rows::of('warm');
        if (($_GET['do'] ?? '') !== 'without') {
            register_shutdown_function(fn() => hand_in('of each request'));
        }
        echo 'hello ', $_GET['do'] ?? '', ' ';
        hand_in('request ' . $_GET['do'] ?? '');
        switch ($_GET['do'] ?? '') {
            case 'two of a class':
                Rows::of('warm')->add('of this request');
                Rows::of('cold')->add('of this request');
                break;
            case 'unset':
                unset($GLOBALS['alone'], $GLOBALS['object'], $GLOBALS['first'], $GLOBALS['outer']);
                echo json_encode([$GLOBALS['weak']->get(), count($GLOBALS['map'])]);
                break;
            case 'kept':
                echo json_encode([$GLOBALS['weak']->get() === $GLOBALS['object'], count($GLOBALS['map'])]);
                break;
            case 'generator':
                All::$generator = null;
                echo 'gone';
                break;
            case 'fiber':
                All::$fiber = null;
                echo 'gone';
                break;
            case 'resumed':
                All::$fiber->resume();
                All::$generator->next();
                echo All::$generator->current();
                break;
            case 'cycle':
                unset($GLOBALS['cycle']);
                echo gc_collect_cycles() > 0 ? 'collected' : 'nothing';
                break;
            case 'replaced':
                $GLOBALS['alone'] = null;
                $GLOBALS['alone'] = new Noisy('new one in the place of alone');
                $GLOBALS['object'] = null;
                $GLOBALS['object'] = new Noisy('new one in the place of object');
                break;
            case 'many':
                // Numbers and blocks of objects of the boot are used again by others.
                $GLOBALS['object'] = $GLOBALS['first'] = null;
                for ($i = 0; $i < 50; $i++) {
                    $many[] = new Quiet();
                    $many[$i]->held = new Noisy("one of many $i");
                }
                $GLOBALS['many'] = $many;
                break;
            case 'mine':
                $GLOBALS['mine'] = new Noisy('mine');
                All::$static->held = new Noisy('mine, held by the boot');
                break;
            case 'clone':
                $GLOBALS['clone'] = clone $GLOBALS['alone'];
                break;
            case 'exception':
                throw new Exception('nobody catches it');
            case 'error':
                undefined_function();
            case 'fatal':
                eval('class Noisy {}');
                break;
            case 'memory':
                ini_set('memory_limit', '8M');
                str_repeat('x', 1 << 30);
                break;
            case 'exit':
                exit('bye');
            case 'throws':
                $GLOBALS['shared']->end = fn() => throw new Exception('of a destructor');
                break;
            case 'throws at unset':
                $GLOBALS['alone']->end = fn() => throw new Exception('of a destructor');
                try {
                    unset($GLOBALS['alone']);
                } catch (Exception $e) {
                    echo 'caught ', $e->getMessage();
                }
                break;
            case 'exits':
                $GLOBALS['captured']->end = fn() => exit('exit of a destructor');
                break;
            case 'fails':
                $GLOBALS['shared']->end = fn() => trigger_error('fatal in a destructor', E_USER_ERROR);
                break;
            case 'makes':
                $GLOBALS['shared']->end = function (): void {
                    $GLOBALS['late'] = new Noisy('made by a destructor');
                    All::$static = new Noisy('also made by a destructor');
                };
                break;
            case 'saves':
                $GLOBALS['alone']->end = fn() => $GLOBALS['saved'] = $GLOBALS['alone'] ?? 1;
                break;
            case 'buffer':
                ob_start(fn(string $text): string => strtoupper($text));
                echo 'buffered';
                break;
            case 'lines':
                All::$buffer->add('line of ' . $_GET['n']);
                gzwrite($GLOBALS['gz'], "line of {$_GET['n']}\n");
                fwrite($GLOBALS['slate'], "line of {$_GET['n']}");
                fwrite($GLOBALS['filtered'], "{$_GET['n']}!");
                fwrite($GLOBALS['file'], "line of {$_GET['n']}\n");
                Tasks::it()->add($_GET['n']);
                break;
            case 'closes':
                fwrite($GLOBALS['slate'], 'closed by the request');
                unset($GLOBALS['slate']);
                gzwrite($GLOBALS['gz'], "closed by the request\n");
                gzclose($GLOBALS['gz']);
                echo json_encode(fwrite($GLOBALS['file'], "before it is closed\n"));
                break;
            case 'suspended':
                $GLOBALS['suspended'] = suspended('of the request');
                $GLOBALS['suspended']->current();
                break;
        }
    })) {
    }
}
serve($captured);
