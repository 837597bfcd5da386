<?php

declare(strict_types=1);

namespace Windbook;

/** How the application is being run. */
enum Mode: string
{
    /** Booted for one request, then thrown away. */
    case Classic = 'classic';

    /** Booted once, then answering one request after the other. */
    case Worker = 'worker';
}
