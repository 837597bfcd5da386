<?php
/*
 * What the application of the matrix holds when the snapshot is taken: every kind of value, handle and setting that a
 * request could damage, and one line for each in look(), which has to say the same at the start of every request.
 */
declare(strict_types=1);

enum Suit: string
{
    case Hearts = 'h';
    case Spades = 's';

    public static function counted(): int
    {
        static $calls = 0;
        return ++$calls;
    }
}

/** Leaves its line in a file when it is destroyed. */
final class Witness
{
    public function __construct(private string $file, private string $line)
    {
    }

    public function __destruct()
    {
        file_put_contents($this->file, $this->line, FILE_APPEND);
    }
}

class Node
{
    public static int $made = 0;
    public static array $register = [];
    public ?Node $next = null;
    public array $items = [];
    public mixed $extra = null;

    public function __construct(public string $name)
    {
        self::$made++;
    }

    public static function counted(): int
    {
        static $calls = 0;
        return ++$calls;
    }
}

/** An object of the boot: its destructor runs at the end of each request, as if that had booted by itself. */
final class Permanent
{
    public function __construct(private string $file)
    {
    }

    public function __destruct()
    {
        file_put_contents($this->file, 'p ' . getmypid() . "\n", FILE_APPEND);
    }
}

function counted(): int
{
    static $calls = 0;
    return ++$calls;
}

function boot_error_handler(int $number, string $message): bool
{
    return false;
}

class Memory_Wrapper
{
    public $context;

    public function stream_open(string $path): bool
    {
        return true;
    }
}

final class Boot
{
    public static Boot $it;
    public static int $requests = 0;
    public Node $tree;
    public ?Permanent $permanent;
    /** @var array<int, string> */
    public array $list;
    public $file;
    public $directory;
    public $memory;
    public SplFileObject $lines;
    public DirectoryIterator $files;
    public SysvSemaphore $semaphore;
    /** Longer than what PHP reads ahead. */
    public $long;
    public SplObjectStorage $storage;
    public WeakMap $weak;
    public WeakReference $reference;
    public Generator $generator;
    public ?Generator $other;
    public Fiber $fiber;
    public ?Fiber $spare;
    public Closure $closure;
    public PDO $database;
    public DOMDocument $document;
    public ArrayIterator $iterator;
    public SplPriorityQueue $queue;
    public $context;
    public string $text;
    public FFI $libc;
    /** Four pages that the boot has mapped by itself. */
    public FFI\CData $pages;

    public function __construct(public readonly string $dir)
    {
        $files = __DIR__ . '/kinds';
        $this->tree = new Node('root');
        $this->tree->next = new Node('child');
        $this->tree->next->items = ['a' => 1, 'b' => [2, 3]];
        $this->tree->extra = &$this->tree->next->items['b'];
        Node::$register['root'] = $this->tree;
        $this->permanent = new Permanent("$dir/permanent");
        $this->list = range(1, 500);
        $this->list[] = 'the last';
        $this->text = str_repeat('text', 1000);
        $this->file = fopen(__FILE__, 'r');
        fgets($this->file);
        $this->directory = opendir($files);
        readdir($this->directory);
        $this->memory = fopen('php://memory', 'w+');
        fwrite($this->memory, 'in memory');
        $this->lines = new SplFileObject(__FILE__);
        $this->lines->fgets();
        $this->files = new DirectoryIterator($files);
        $this->files->next();
        /* Of this server's own: see MatrixSite.remove(). */
        $this->semaphore = sem_get(crc32($dir) & 0x7fffffff);
        $long = "$dir/long";
        if (!is_file($long)) {
            file_put_contents("$long." . getmypid(), implode("\n", range(1, 20000)));
            rename("$long." . getmypid(), $long);
        }
        $this->long = fopen($long, 'r');
        fread($this->long, 10);
        $this->storage = new SplObjectStorage();
        $this->storage[$this->tree] = 'tree';
        $this->weak = new WeakMap();
        $this->weak[$this->tree] = 'tree';
        $this->reference = WeakReference::create($this->tree);
        $this->generator = (static function (): Generator {
            try {
                for ($i = 1;; $i++) {
                    yield $i;
                }
            } finally {
                Boot::$requests = -1000;
            }
        })();
        $this->generator->next();
        $this->other = (static fn(): Generator => yield from ['x' => 1, 'y' => 2])();
        $this->other->current();
        $this->fiber = self::fiber();
        $this->spare = self::fiber();
        $calls = 0;
        $this->closure = static function () use (&$calls): int {
            static $inner = 0;
            return ++$calls * 100 + ++$inner;
        };
        $this->database = new PDO('sqlite::memory:');
        $this->database->exec('CREATE TABLE t (n INTEGER); INSERT INTO t VALUES (1), (2)');
        $this->document = new DOMDocument();
        $this->document->loadXML('<r><a n="1"/><b/></r>');
        $this->iterator = new ArrayIterator([1, 2, 3]);
        $this->iterator->next();
        $this->queue = new SplPriorityQueue();
        $this->queue->insert('low', 1);
        $this->queue->insert('high', 2);
        $this->context = stream_context_create(['http' => ['header' => 'X-Boot: 1']]);

        $this->libc = FFI::cdef('
            void *mmap(void *, size_t, int, int, int, long); int munmap(void *, size_t); int mprotect(void *, size_t, int);
            int close(int); int dup2(int, int);
        ');
        $this->pages = FFI::cast('char *', $this->libc->mmap(null, 4 * 4096, 3, 0x22, -1, 0));
        FFI::memset($this->pages, 66, 4 * 4096);

        ini_set('precision', '10');
        ini_set('user_agent', 'boot');
        putenv('BOOT=yes');
        setlocale(LC_CTYPE, 'C.utf8');
        date_default_timezone_set('Europe/Lisbon');
        umask(0027);
        chdir(__DIR__);
        set_error_handler('boot_error_handler', E_USER_DEPRECATED);
        spl_autoload_register(static function (string $class): void {
            if ($class === 'Loaded_At_Boot') {
                eval('class Loaded_At_Boot {}');
            }
        });
        stream_wrapper_register('bootmem', Memory_Wrapper::class);
        stream_context_set_default(['http' => ['user_agent' => 'boot']]);
        define('AT_BOOT', 'constant');
        mb_internal_encoding('UTF-8');
        iconv('UTF-8', 'ISO-8859-1', 'é');
    }

    private static function fiber(): Fiber
    {
        $fiber = new Fiber(static function (): void {
            try {
                for ($i = 1;; $i++) {
                    Fiber::suspend($i);
                }
            } finally {
                Boot::$requests = -2000;
            }
        });
        $fiber->start();
        return $fiber;
    }

    /** Looks at all of it, using it up where looking does: a name and a function for each. */
    public function look(): array
    {
        return [
            'tree' => fn() => serialize($this->tree),
            'statics' => fn() => [Node::$made, array_keys(Node::$register), self::$requests++, Node::counted(), Suit::counted(), counted()],
            'permanent' => fn() => $this->permanent !== null,
            'list' => fn() => [count($this->list), end($this->list), md5(implode(',', $this->list))],
            'text' => fn() => md5($this->text),
            'file' => fn() => [is_resource($this->file), $this->file ? ftell($this->file) : 0, $this->file ? fgets($this->file) : ''],
            'directory' => fn() => is_resource($this->directory) ? readdir($this->directory) : 'closed',
            'memory' => fn() => [stream_get_contents($this->memory, null, 0), ftell($this->memory)],
            'lines' => fn() => [$this->lines->ftell(), $this->lines->fgets()],
            'semaphore' => fn() => sem_acquire($this->semaphore) && sem_release($this->semaphore),
            'long' => fn() => [ftell($this->long), md5((string) fread($this->long, 40000)), stream_get_meta_data($this->long)['blocked']],
            'files' => fn() => [$this->files->key(), $this->files->getFilename()],
            'storage' => fn() => [$this->storage->count(), $this->storage[$this->tree] ?? null],
            'weak' => fn() => [count($this->weak), $this->weak[$this->tree] ?? null, $this->reference->get() === $this->tree],
            'generator' => fn() => [$this->generator->current(), $this->generator->send(null), $this->other?->key()],
            'fiber' => fn() => [$this->fiber->isSuspended(), $this->fiber->resume(), $this->spare?->isSuspended()],
            'closure' => fn() => [($this->closure)(), spl_object_id($this->closure)],
            'database' => fn() => [
                $this->database->inTransaction(),
                $this->database->query('SELECT count(*), sum(n) FROM t')->fetch(PDO::FETCH_NUM),
                $this->database->query("SELECT count(*) FROM sqlite_master")->fetchColumn(),
            ],
            'document' => fn() => $this->document->saveXML(),
            'iterator' => fn() => [$this->iterator->key(), $this->iterator->count()],
            'queue' => fn() => $this->queue->count() > 0 ? [$this->queue->count(), $this->queue->extract()] : 'empty',
            'context' => fn() => stream_context_get_options($this->context),
            'pages' => fn() => md5(FFI::string($this->pages, 4 * 4096)),
        ];
    }
}
