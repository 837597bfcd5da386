<?php
$log = [];
$handler = new class($log) implements SessionHandlerInterface, SessionUpdateTimestampHandlerInterface, SessionIdInterface {
    public function __construct(private array &$log)
    {
    }
    public function open(string $path, string $name): bool { $this->log[] = "open $name"; return true; }
    public function close(): bool { $this->log[] = 'close'; return true; }
    public function read(string $id): string|false { $this->log[] = "read $id"; return 'stored|i:41;'; }
    public function write(string $id, string $data): bool { $this->log[] = "write $id $data"; return true; }
    public function destroy(string $id): bool { $this->log[] = "destroy $id"; return true; }
    public function gc(int $lifetime): int|false { $this->log[] = 'gc'; return 0; }
    public function create_sid(): string { return 'created-by-the-handler'; }
    public function validateId(string $id): bool { return $id === 'created-by-the-handler'; }
    public function updateTimestamp(string $id, string $data): bool { $this->log[] = 'touch'; return true; }
};
session_set_save_handler($handler, false);
session_start();
$_SESSION['stored'] += isset($_GET['change']) ? 1 : 0;
echo $_SESSION['stored'], "\n";
session_write_close();
echo implode("\n", $log), "\n";
