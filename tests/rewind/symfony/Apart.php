<?php

declare(strict_types=1);

namespace App;

/** A service that is not to be loaded before somebody needs it. */
final class Apart
{
}
