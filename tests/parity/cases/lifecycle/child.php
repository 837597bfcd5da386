<?php
/* Child processes: their output, their status, and that they inherit no descriptor of the server's. */
require_once __DIR__ . '/../show.php';
show('shell_exec', shell_exec('echo shell'));
exec('printf "a\nb\n"; exit 3', $lines, $status);
show('exec', [$lines, $status]);
passthru('echo passthru');
show('system', system('echo system', $status));
$process = proc_open(['sh', '-c', 'cat; echo error >&2; exit 5'], [['pipe', 'r'], ['pipe', 'w'], ['pipe', 'w']], $pipes, '/', ['ONLY' => 'this']);
fwrite($pipes[0], 'input');
fclose($pipes[0]);
show('proc_open', [stream_get_contents($pipes[1]), stream_get_contents($pipes[2])]);
show('proc_close', proc_close($process));
$handle = popen('cat > /dev/null', 'w');
show('popen', pclose($handle));
show('escapeshellarg', escapeshellarg("it's"));
show('stdin of a child', shell_exec('cat'));
