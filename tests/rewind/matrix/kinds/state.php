<?php
/* Everything that PHP code can leave in PHP's own memory, that of the boot included. */
declare(strict_types=1);

return [
    'globals' => static function (): void {
        global $boot, $kinds;
        for ($i = 0; $i < 50; $i++) {
            $GLOBALS["made_$i"] = str_repeat('x', $i * 100);
        }
        $boot = null;
        $kinds = [];
        $GLOBALS['_SERVER']['leak'] = $GLOBALS['_ENV']['leak'] = 'x';
        $_GET = $_POST = 'no array';
    },
    'statics' => static function (Boot $boot): void {
        Boot::$requests = 999;
        Node::$made += 100;
        Node::$register['x'] = new Node('leak');
        for ($i = 0; $i < 10; $i++) {
            counted();
            Node::counted();
            Suit::counted();
            ($boot->closure)();
        }
    },
    'constants' => static function (): void {
        define('MADE_IN_A_REQUEST', [1, 2]);
        define('Another\One', 'x');
        echo MADE_IN_A_REQUEST[1], constant('Another\One');
    },
    'declarations' => static function (): void {
        eval('
            interface I1 {} trait T1 { public static int $n = 0; } abstract class A1 implements I1 { use T1; }
            class C1 extends A1 { const X = "x"; public static array $cache = []; }
            enum E1: int { case One = 1; }
            function f1(): int { static $n = 0; return ++$n; }
        ');
        C1::$cache[] = C1::$n = 5;
        echo f1(), f1(), E1::from(1)->name;
        if (!class_exists('Conditional')) {
            eval('class Conditional {}');
        }
        echo class_exists('Loaded_At_Boot') ? 'loaded' : 'missing';
    },
    'aliases' => static function (): void {
        class_alias('Node', 'Nodule');
        echo (new Nodule('x'))->name;
    },
    'anonymous_classes' => static function (): void {
        $object = new class extends Node {
            public function __construct()
            {
                parent::__construct('anonymous');
            }
        };
        Node::$register[] = $object;
        echo $object->name;
    },
    'include' => static function (Boot $boot): void {
        echo (include __DIR__ . '/../included.php'), included_function();
        include_once __DIR__ . '/../included_once.php';
        require_once __DIR__ . '/../included_once.php';
    },
    'include_made' => static function (Boot $boot): void {
        file_put_contents($file = tempnam($boot->dir, 'made'), '<?php class Made_In_A_File { public static $n = 1; } return 5;');
        echo include $file;
        Made_In_A_File::$n++;
        unlink($file);
    },
    'eval' => static function (): void {
        for ($i = 0; $i < 50; $i++) {
            $GLOBALS['sum'] = (eval("return static fn() => $i;"))();
        }
        echo $GLOBALS['sum'];
    },
    'boot_objects_changed' => static function (Boot $boot): void {
        $boot->tree->name = 'changed';
        $boot->tree->next->items['a'] = $boot;
        $boot->tree->extra[] = 'through a reference';
        $boot->tree->dynamic = 'property';
        $boot->tree->next->next = $boot->tree;
        $boot->document->documentElement->setAttribute('leak', '1');
        $boot->document->documentElement->appendChild($boot->document->createElement('leak'));
        $boot->iterator->append(4);
        $boot->queue->insert('leak', 9);
        stream_context_set_option($boot->context, 'http', 'header', 'X-Leak: 1');
    },
    'boot_objects_dropped' => static function (Boot $boot): void {
        $boot->tree = new Node('replaced');
        Node::$register = [];
        $boot->storage->removeAll($boot->storage);
        $boot->permanent = null;
        $boot->other = null;
        $boot->spare = null;
        unset($boot->queue, $boot->iterator, $boot->closure, $boot->document, $boot->database);
        gc_collect_cycles();
        Boot::$it = clone $boot;
    },
    'boot_application_dropped' => static function (Boot $boot): void {
        unset($GLOBALS['boot'], $GLOBALS['kinds'], Boot::$it->permanent);
        gc_collect_cycles();
        echo 'gone';
    },
    'boot_arrays' => static function (Boot $boot): void {
        $boot->list[] = 'leak';
        $boot->list[3] = 'changed';
        sort($boot->list);
        foreach ($boot->list as &$value) {
            $value = "by reference $value";
        }
        $boot->list = array_merge($boot->list, $boot->list);
        $copy = &$boot->list;
        $GLOBALS['reference'] = &$copy;
    },
    'boot_strings' => static function (Boot $boot): void {
        $boot->text[5] = 'X';
        $boot->text .= str_repeat('leak', 5000);
    },
    'boot_maps' => static function (Boot $boot): void {
        for ($i = 0; $i < 100; $i++) {
            $boot->storage[$object = new Node("n$i")] = $i;
            $boot->weak[$object] = $i;
            Node::$register[] = $object;
        }
        $boot->storage->detach($boot->tree);
        unset($boot->weak[$boot->tree]);
        echo count($boot->storage);
    },
    'boot_generators' => static function (Boot $boot): void {
        foreach ($boot->generator as $value) {
            if ($value > 50) {
                break;
            }
        }
        foreach ($boot->other as $ignored) {
        }
        try {
            $boot->generator->throw(new LogicException('ends it'));
        } catch (LogicException) {
        }
        echo Boot::$requests;
    },
    'boot_fibers' => static function (Boot $boot): void {
        for ($i = 0; $i < 20; $i++) {
            $boot->fiber->resume();
        }
        try {
            $boot->fiber->throw(new LogicException('ends it'));
        } catch (LogicException) {
        }
        echo Boot::$requests;
        $boot->spare = null;
        gc_collect_cycles();
        echo Boot::$requests;
    },
    'boot_closures' => static function (Boot $boot): void {
        $boot->closure = Closure::bind($boot->closure, null, Node::class);
        ($boot->closure)();
        $boot->closure = static fn(): int => 0;
    },
    'boot_database' => static function (Boot $boot): void {
        $boot->database->exec('CREATE TABLE leak (n); INSERT INTO t VALUES (3)');
        $boot->database->beginTransaction();
        $boot->database->exec('DELETE FROM t');
        $boot->database->sqliteCreateFunction('leak', static fn(): int => 1);
        echo $boot->database->query('SELECT leak()')->fetchColumn();
    },
    'boot_loop_over_list' => static function (Boot $boot): void {
        foreach ($boot->list as $key => $value) {
            $seen[$value] = $boot;
        }
        echo count($seen);
    },
    'object_ids' => static function (): void {
        for ($i = 0; $i < 2000; $i++) {
            $objects[] = new stdClass();
            if ($i % 3 === 0) {
                unset($objects[array_rand($objects)]);
            }
        }
        $GLOBALS['objects'] = $objects;
    },
    'cycles' => static function (): void {
        for ($i = 0; $i < 12000; $i++) {
            $a = new Node('a');
            $a->next = new Node('b');
            $a->next->next = $a;
        }
    },
    'interned_strings' => static function (): void {
        $name = 'property_' . str_repeat('y', 40);
        $object = new stdClass();
        $object->{$name} = 1;
        echo strlen(json_encode([$name => constant('AT_BOOT'), 'o' => $object]));
        setlocale(LC_ALL, 'C');
    },
    'enum_in_map' => static function (Boot $boot): void {
        $boot->weak[Suit::Hearts] = 'held';
        Node::$register[] = Suit::from('s');
        echo Suit::tryFrom('x')?->name ?? 'none';
    },
    'reflection' => static function (Boot $boot): void {
        (new ReflectionProperty(Node::class, 'made'))->setValue(null, -5);
        $made = (new ReflectionClass(Node::class))->newInstanceWithoutConstructor();
        $made->name = 'by reflection';
        (new ReflectionFunction('counted'))->invoke();
        echo (new ReflectionMethod(Boot::class, 'fiber'))->invoke(null)->isSuspended() ? 'suspended' : '';
    },
    'serialising' => static function (Boot $boot): void {
        $copy = unserialize(serialize($boot->tree));
        $copy->name = 'copy';
        Node::$register[] = $copy;
        echo strlen(serialize($copy));
    },
    'weak_values' => static function (Boot $boot): void {
        $map = new WeakMap();
        for ($i = 0; $i < 100; $i++) {
            $map[new Node('temporary')] = 1;
            $map[$kept[] = new Node('kept')] = $boot;
        }
        $GLOBALS['map'] = $map;
        $GLOBALS['dangling'] = WeakReference::create(new Node('x'));
        echo count($map);
    },
];
