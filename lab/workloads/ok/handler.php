<?php
/* The answer as a value, for servers that keep PHP running: see lab/workloads/README.md. */
return static fn (): Closure => static fn (string $target): array => [200, ['Content-Type' => 'text/html'], 'ok'];
