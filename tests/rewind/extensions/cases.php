<?php

/**
 * Extensions, each doing what it is for: the modules it takes, in the order in which they have to be loaded; what the boot
 * does; what each request does with what the boot made. A request returns what must be the same every time.
 *
 * test_extensions.py sets EXT_TMP (a directory of the case's own), PONG (a URL that answers "pong"), MEMCACHED and GEARMAND
 * (ports; nothing listens on port 1).
 */

$tmp = getenv('EXT_TMP');
$memcached = ['127.0.0.1', (int) getenv('MEMCACHED')];
$odbc = 'Driver=/usr/lib/x86_64-linux-gnu/odbc/libsqlite3odbc.so;Database=' . $tmp;
$nothing = static fn () => null;
$refused = static function (callable $connect): string {
    try {
        $connect();
        return 'connected';
    } catch (Throwable $e) {
        return $e::class;
    }
};
$dba = static function (string $handler) use ($tmp) {
    $db = dba_open("$tmp/boot-$handler", 'n', $handler);
    dba_insert('k', 'v', $db);
    dba_close($db);
    return dba_open("$tmp/boot-$handler", 'r', $handler);
};
$envelope = '<e:Envelope xmlns:e="http://schemas.xmlsoap.org/soap/envelope/"><e:Body>'
    . '<n:strtoupper xmlns:n="urn:x"><s>abc</s></n:strtoupper></e:Body></e:Envelope>';
$wsdl = <<<'XML'
    <definitions xmlns="http://schemas.xmlsoap.org/wsdl/" xmlns:soap="http://schemas.xmlsoap.org/wsdl/soap/" xmlns:t="urn:t"
        xmlns:x="http://www.w3.org/2001/XMLSchema" targetNamespace="urn:t">
    <message name="i"><part name="a" type="x:string"/></message>
    <portType name="p"><operation name="f"><input message="t:i"/></operation></portType>
    <binding name="b" type="t:p"><soap:binding style="rpc" transport="http://schemas.xmlsoap.org/soap/http"/>
    <operation name="f"><soap:operation soapAction="f"/><input><soap:body use="literal" namespace="urn:t"/></input></operation></binding>
    <service name="s"><port name="p" binding="t:b"><soap:address location="http://127.0.0.1:1/"/></port></service>
    </definitions>
    XML;

return [
    'amqp' => [['amqp'], $nothing, fn () => $refused(fn () => (new AMQPConnection(['host' => '127.0.0.1', 'port' => 1]))->connect())],
    'ast' => [['ast'], fn () => ast\parse_code('<?php f(1);', 90), fn ($b) => md5(serialize([ast\parse_code('<?php g([1]);', 90), $b]))],
    'bcmath' => [['bcmath'], fn () => bcscale(3), function () {
        $third = bcdiv('10', '3');
        bcscale(30);
        return $third . bcsqrt('2') . bcpowmod('7', '1234567', '97');
    }],
    'bz2' => [['bz2'], fn () => bzcompress(str_repeat('a', 10000)), function ($b) use ($tmp) {
        bzwrite(bzopen("$tmp/x.bz2", 'w'), 'left open');
        $file = fopen("$tmp/y.bz2", 'w');
        stream_filter_append($file, 'bzip2.compress');
        fwrite($file, str_repeat('q', 5000));
        return md5(bzdecompress($b)) . bin2hex(bzcompress('x'));
    }],
    'dba' => [['dba'], $nothing, function () use ($tmp) {
        $said = '';
        foreach (['db4', 'qdbm', 'lmdb', 'inifile', 'flatfile'] as $handler) {
            $db = dba_open("$tmp/$handler", 'n', $handler); // left open
            dba_insert('k', 'v', $db);
            $said .= dba_fetch('k', $db);
        }
        return $said;
    }],
    'dba_boot_db4' => [['dba'], fn () => $dba('db4'), fn ($db) => dba_fetch('k', $db)],
    'dba_boot_lmdb' => [['dba'], fn () => $dba('lmdb'), fn ($db) => dba_fetch('k', $db)],
    'dba_boot_qdbm' => [['dba'], fn () => $dba('qdbm'), fn ($db) => dba_fetch('k', $db)],
    'ds' => [['ds'], fn () => [new Ds\Vector([1, 2, 3]), new Ds\Map(['a' => new stdClass()])], function ($b) {
        $said = $b[0]->count() . count($b[1]);
        $b[0]->push(...range(1, 10000));
        $b[1]->put('z', 1);
        $queue = new Ds\PriorityQueue();
        array_map(fn ($n) => $queue->push($n, -$n), range(1, 100));
        return $said . $queue->pop();
    }],
    'enchant' => [['enchant'], $nothing, fn () => count(enchant_broker_describe(enchant_broker_init()))],
    'enchant_boot' => [['enchant'], fn () => enchant_broker_init(), fn ($b) => (int) enchant_broker_dict_exists($b, 'en_US')],
    'excimer' => [['excimer'], function () {
        $profiler = new ExcimerProfiler();
        $profiler->setPeriod(3600);
        return $profiler;
    }, function ($profiler) {
        $profiler->start();
        $timer = new ExcimerTimer();
        $timer->setInterval(3600); // left running, in a thread of its own
        $timer->setCallback(fn () => null);
        $timer->start();
        $profiler->stop();
        return count($profiler->getLog());
    }],
    'gearman' => [['gearman'], $nothing, function () {
        $client = new GearmanClient();
        $client->addServer('127.0.0.1', (int) getenv('GEARMAND'));
        return strlen($client->doBackground('nobody', 'x')) > 5 ? $client->returnCode() : 'no';
    }],
    'gmagick' => [['gmagick'], $nothing, function () {
        $image = new Gmagick();
        $image->newImage(200, 200, 'red')->setImageFormat('png')->blurImage(2, 1);
        return $image->resizeImage(50, 50, Gmagick::FILTER_LANCZOS, 1)->getImageWidth();
    }],
    'gmp' => [['gmp'], fn () => gmp_init('123456789123456789123456789'), function ($b) {
        gmp_random_seed(5);
        return md5(gmp_strval(gmp_pow($b, 20)) . gmp_strval(gmp_nextprime('1000000007')) . gmp_strval(gmp_random_bits(100)));
    }],
    'gnupg' => [['gnupg'], $nothing, function () use ($tmp) {
        putenv("GNUPGHOME=$tmp/nowhere");
        return json_encode(@(new gnupg())->keyinfo('nobody'));
    }],
    'http' => [['raphf', 'http'], $nothing, fn () => (new http\Client())
        ->enqueue(new http\Client\Request('GET', getenv('PONG')))->send()->getResponse()->getBody()->toString()],
    'http_boot' => [['raphf', 'http'], fn () => new http\Client(), fn ($client) => $client
        ->enqueue(new http\Client\Request('GET', getenv('PONG')))->send()->getResponse()->getBody()->toString()],
    'igbinary' => [['igbinary'], fn () => igbinary_serialize(range(1, 1000)), fn ($b) => md5(json_encode(igbinary_unserialize($b)))],
    'imagick' => [['imagick'], $nothing, function () {
        $image = new Imagick();
        $image->newImage(600, 600, 'red');
        $image->setImageFormat('png');
        $image->gaussianBlurImage(5, 3);
        $draw = new ImagickDraw();
        $draw->rectangle(1, 1, 20, 20);
        $image->drawImage($draw);
        return $image->getImageSignature();
    }],
    'imagick_boot' => [['imagick'], function () {
        $image = new Imagick();
        $image->newImage(600, 600, 'red');
        return $image;
    }, function ($image) {
        $image->gaussianBlurImage(5, 3);
        $image->resizeImage(50, 50, Imagick::FILTER_LANCZOS, 1);
        return $image->getImageSignature();
    }],
    'imap' => [['imap'], $nothing, fn () => json_encode(
        [@imap_open('{127.0.0.1:1/imap/notls}', 'a', 'b', 0, 1), imap_errors(), imap_utf7_encode("\xe9")],
    )],
    'inotify' => [['inotify'], $nothing, function () use ($tmp) {
        $watch = inotify_init();
        inotify_add_watch($watch, $tmp, IN_CREATE);
        touch("$tmp/made-" . getmypid() . '-' . hrtime(true));
        return count(inotify_read($watch)); // left open
    }],
    'ldap' => [['ldap'], fn () => ldap_connect('ldap://127.0.0.1:1'), function ($boot) {
        ldap_get_option($boot, LDAP_OPT_PROTOCOL_VERSION, $version);
        ldap_set_option($boot, LDAP_OPT_PROTOCOL_VERSION, 5 - $version);
        ldap_get_option(ldap_connect('ldap://127.0.0.1:1'), LDAP_OPT_NETWORK_TIMEOUT, $timeout); // takes what is global
        ldap_set_option(null, LDAP_OPT_NETWORK_TIMEOUT, 1);
        return json_encode([$version, $timeout, @ldap_bind($boot, 'cn=a', 'b'), @ldap_bind(ldap_connect('ldap://127.0.0.1:1'))]);
    }],
    'libvirt' => [['libvirt-php'], $nothing, fn () => libvirt_connect_get_hypervisor(libvirt_connect('test:///default', false))['hypervisor']],
    'mailparse' => [['mailparse'], $nothing, function () {
        $message = mailparse_msg_create();
        mailparse_msg_parse($message, "From: a@b\r\nContent-Type: text/plain\r\n\r\nhi\r\n");
        return json_encode([mailparse_msg_get_part_data($message)['headers'], mailparse_rfc822_parse_addresses('A <a@b>')]);
    }],
    'maxminddb' => [['maxminddb'], $nothing, fn () => $refused(fn () => new MaxMind\Db\Reader('/nonexistent'))],
    'mcrypt' => [['mcrypt'], $nothing, fn () => bin2hex(
        mcrypt_encrypt('rijndael-128', str_repeat('k', 16), 'secret', 'cbc', str_repeat('i', 16)),
    )],
    'memcache' => [['memcache'], $nothing, function () use ($memcached) {
        [$plain, $persistent, $pool] = [new Memcache(), new Memcache(), new Memcache()];
        $plain->connect(...$memcached);
        $persistent->pconnect(...$memcached);
        $pool->addServer(...$memcached);
        $plain->set('a', ['x' => 1]);
        return json_encode([$plain->get('a'), $persistent->get('a'), $pool->get('a')]);
    }],
    'memcached' => [['igbinary', 'msgpack', 'memcached'], $nothing, function () use ($memcached) {
        $plain = new Memcached();
        $plain->addServer(...$memcached);
        $plain->set('a', ['x' => 1]);
        $persistent = new Memcached('pool');
        $known = count($persistent->getServerList());
        $persistent->addServer(...$memcached);
        $prefix = $persistent->getOption(Memcached::OPT_PREFIX_KEY);
        $answer = $persistent->get('a');
        $persistent->setOption(Memcached::OPT_PREFIX_KEY, 'left');
        return json_encode([$plain->get('a'), $answer, $known, $prefix]);
    }],
    // Its connection is made by the first command, in a request.
    'memcached_made_at_boot' => [['igbinary', 'msgpack', 'memcached'], function () use ($memcached) {
        $persistent = new Memcached('pool');
        $persistent->addServer(...$memcached);
        return $persistent;
    }, function ($persistent) {
        $prefix = $persistent->getOption(Memcached::OPT_PREFIX_KEY);
        $persistent->set('b', 5);
        $answer = $persistent->get('b');
        $persistent->setOption(Memcached::OPT_PREFIX_KEY, 'left');
        return json_encode([$answer, $prefix]);
    }],
    'memcached_connected_at_boot' => [['igbinary', 'msgpack', 'memcached'], function () use ($memcached) {
        $plain = new Memcached();
        $plain->addServer(...$memcached);
        $plain->set('c', 7);
        return $plain;
    }, fn ($plain) => $plain->get('c')],
    'mongodb' => [['mongodb'], fn () => new MongoDB\Driver\Manager('mongodb://127.0.0.1:1', ['serverSelectionTimeoutMS' => 10]),
        fn ($boot) => bin2hex(class_exists(MongoDB\BSON\Document::class) ? (string) MongoDB\BSON\Document::fromPHP(['a' => 1]) : MongoDB\BSON\fromPHP(['a' => 1]))
            . $refused(fn () => $boot->executeCommand('a', new MongoDB\Driver\Command(['ping' => 1])))
            . $refused(fn () => (new MongoDB\Driver\Manager('mongodb://127.0.0.1:1', ['serverSelectionTimeoutMS' => 11]))
                ->executeCommand('a', new MongoDB\Driver\Command(['ping' => 1])))],
    'msgpack' => [['msgpack'], fn () => new MessagePackUnpacker(), function ($unpacker) {
        $unpacker->feed(msgpack_pack([1]));
        return json_encode([msgpack_unpack(msgpack_pack(['a' => [1, 2]])), $unpacker->execute(), $unpacker->data()]);
    }],
    'oauth' => [['oauth'], fn () => new OAuth('a', 'b'), function ($oauth) {
        $oauth->setToken('x', 'y');
        $oauth->setNonce('n');
        $oauth->setTimestamp('1');
        return $oauth->getRequestHeader('GET', 'http://a/b') . oauth_urlencode('ä');
    }],
    // Their coroutines and servers refuse any SAPI but the command line's.
    'openswoole' => [['openswoole'], $nothing, fn () => OpenSwoole\Util::getVersion()],
    'odbc' => [['odbc', 'pdo_odbc'], $nothing, function () use ($odbc) {
        $link = odbc_connect("$odbc/1", '', ''); // from 8.4 on a result ends with it
        $result = odbc_exec($link, 'select 1+1');
        odbc_fetch_row($result);
        odbc_pconnect("$odbc/2", '', '');
        return odbc_result($result, 1) . (new PDO("odbc:$odbc/1"))->query('select 3')->fetchColumn();
    }],
    'pcov' => [['pcov'], $nothing, function () {
        pcov\start();
        return count(pcov\waiting());
    }],
    'pdo_dblib' => [['pdo_dblib'], $nothing, fn () => $refused(fn () => new PDO('dblib:host=127.0.0.1:1', 'a', 'b'))],
    'pdo_firebird' => [['pdo_firebird'], $nothing, fn () => $refused(fn () => new PDO('firebird:dbname=127.0.0.1/1:/x', 'a', 'b'))],
    'pinba' => [['pinba'], $nothing, function () {
        pinba_timer_stop(pinba_timer_start(['a' => 'b']));
        return count(pinba_timers_get());
    }],
    'pq' => [['raphf', 'pq'], $nothing, fn () => $refused(fn () => new pq\Connection('host=127.0.0.1 port=1'))],
    'ps' => [['ps'], $nothing, function () use ($tmp) {
        $ps = ps_new();
        ps_open_file($ps, "$tmp/a.ps");
        ps_begin_page($ps, 100, 100);
        ps_end_page($ps);
        ps_close($ps);
        return filesize("$tmp/a.ps") > 100 ? 'written' : 'not';
    }],
    'pspell' => [['pspell'], $nothing, fn () => is_object(@pspell_new('en')) ? 'English' : 'no dictionary'],
    'psr' => [['psr'], $nothing, fn () => (int) interface_exists('Psr\Log\LoggerInterface')],
    'rrd' => [['rrd'], $nothing, function () use ($tmp) {
        rrd_create("$tmp/a.rrd", ['--start', '1000000000', '--step', '300', 'DS:x:GAUGE:600:U:U', 'RRA:AVERAGE:0.5:1:24']);
        rrd_update("$tmp/a.rrd", ['1000000300:5']);
        return rrd_lastupdate("$tmp/a.rrd")['data'][0];
    }],
    'snmp' => [['snmp'], $nothing, function () {
        $before = snmp_get_quick_print();
        snmp_set_quick_print(!$before);
        $session = new SNMP(SNMP::VERSION_2C, '127.0.0.1:1', 'public', 10000, 0);
        return json_encode([@$session->get('1.3.6.1.2.1.1.1.0'), $session->getErrno(), $before]);
    }],
    'soap' => [['soap'], fn () => file_put_contents("$tmp/a.wsdl", $wsdl), function () use ($envelope, $tmp) {
        ini_set('soap.wsdl_cache_enabled', '1');
        $client = new SoapClient("$tmp/a.wsdl", ['cache_wsdl' => WSDL_CACHE_MEMORY]);
        $server = new SoapServer(null, ['uri' => 'urn:x']);
        $server->addFunction('strtoupper');
        ob_start();
        $server->handle($envelope);
        header_remove('Content-Length'); // of what is not sent here
        return md5(ob_get_clean()) . json_encode($client->__getFunctions());
    }],
    'soap_boot' => [['soap'], function () use ($tmp, $wsdl) {
        file_put_contents("$tmp/a.wsdl", $wsdl);
        return new SoapClient("$tmp/a.wsdl", ['cache_wsdl' => WSDL_CACHE_MEMORY, 'trace' => true]);
    }, fn ($client) => strlen((string) $client->__getLastRequest()) . $refused(fn () => $client->f('x'))],
    'solr' => [['solr'], fn () => new SolrInputDocument(), function ($document) use ($refused) {
        $document->addField('a', 'b');
        $client = new SolrClient(['hostname' => '127.0.0.1', 'port' => 1, 'path' => '/']);
        return $document->getFieldCount() . $refused(fn () => $client->query(new SolrQuery('x')));
    }],
    'ssh2' => [['ssh2'], $nothing, fn () => json_encode(@ssh2_connect('127.0.0.1', 1))],
    'stomp' => [['stomp'], $nothing, fn () => $refused(fn () => new Stomp('tcp://127.0.0.1:1'))],
    'swoole' => [['swoole'], $nothing, fn () => swoole_version()],
    'tideways' => [['tideways_xhprof'], $nothing, function () {
        tideways_xhprof_enable(TIDEWAYS_XHPROF_FLAGS_MEMORY); // left on
        return 'on';
    }],
    'tidy' => [['tidy'], fn () => tidy_parse_string('<p>a'), function ($boot) {
        $tidy = tidy_parse_string('<b>hi');
        $tidy->cleanRepair();
        $boot->cleanRepair();
        return md5($tidy . $boot);
    }],
    'uopz' => [['uopz'], $nothing, function () {
        $before = strrev('abc') . (int) defined('LEFT');
        uopz_set_return('strrev', 'other');
        uopz_redefine('LEFT', 1);
        uopz_allow_exit(false);
        return $before . strrev('abc');
    }],
    'uploadprogress' => [['uploadprogress'], $nothing, fn () => json_encode(uploadprogress_get_info('x'))],
    'uuid' => [['uuid'], $nothing, fn () => uuid_type(uuid_create(UUID_TYPE_TIME)) . uuid_type(uuid_create(UUID_TYPE_RANDOM))],
    'xmlrpc' => [['xmlrpc'], fn () => xmlrpc_server_create(), function ($server) {
        xmlrpc_server_register_method($server, 'f', fn () => 5);
        return md5(xmlrpc_server_call_method($server, xmlrpc_encode_request('f', []), null));
    }],
    'yac' => [['yac'], fn () => new Yac('p_'), function ($yac) {
        $yac->set('k', range(1, 500));
        return count($yac->get('k'));
    }],
    'yaml' => [['yaml'], fn () => yaml_parse('a: [1, 2]'), fn ($b) => md5(yaml_emit($b) . json_encode(yaml_parse("- x\n- {y: 1}")))],
    'zstd' => [['zstd'], fn () => zstd_compress(str_repeat('a', 10000)), function ($b) use ($tmp) {
        fwrite(fopen("compress.zstd://$tmp/x.zst", 'w'), 'left open');
        return md5(zstd_uncompress($b) . zstd_uncompress(zstd_compress('x', 19)));
    }],
    'zmq' => [['zmq'], $nothing, function () {
        $context = new ZMQContext(1, false);
        [$a, $b] = [$context->getSocket(ZMQ::SOCKET_PAIR), $context->getSocket(ZMQ::SOCKET_PAIR)];
        $a->bind('inproc://x');
        $b->connect('inproc://x');
        $a->send('hi');
        return $b->recv();
    }],
    'zmq_persistent' => [['zmq'], $nothing, function () {
        $socket = (new ZMQContext(1, true))->getSocket(ZMQ::SOCKET_PUSH, 'left');
        $socket->setSockOpt(ZMQ::SOCKOPT_LINGER, 0);
        $socket->connect('tcp://127.0.0.1:1');
        return 'connecting';
    }],
    'zmq_boot' => [['zmq'], fn () => new ZMQContext(1, false), function ($context) {
        $socket = $context->getSocket(ZMQ::SOCKET_PUSH);
        $socket->setSockOpt(ZMQ::SOCKOPT_LINGER, 0);
        $socket->connect('tcp://127.0.0.1:1');
        return 'connecting';
    }],
];
