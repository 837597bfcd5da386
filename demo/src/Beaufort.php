<?php

declare(strict_types=1);

namespace Windbook;

/** The wind by the Beaufort scale (World Meteorological Organization, Manual on Codes, table 1100). */
enum Beaufort: int
{
    case Calm = 0;
    case LightAir = 1;
    case LightBreeze = 2;
    case GentleBreeze = 3;
    case ModerateBreeze = 4;
    case FreshBreeze = 5;
    case StrongBreeze = 6;
    case NearGale = 7;
    case Gale = 8;
    case StrongGale = 9;
    case Storm = 10;
    case ViolentStorm = 11;
    case Hurricane = 12;

    public function label(): string
    {
        return ucfirst(strtolower((string) preg_replace('/(?<=[a-z])(?=[A-Z])/', ' ', $this->name)));
    }

    /** Knots in the middle of the force's range; of the last, its lower end. */
    public function knots(): int
    {
        return [0, 2, 5, 9, 13, 19, 24, 30, 37, 44, 51, 60, 64][$this->value];
    }

    /**
     * The feathers of a wind barb, as on a weather map: [pennants of 50 knots, long barbs of 10, short barbs of 5].
     *
     * @return array{int, int, int}
     */
    public function feathers(): array
    {
        $fives = (int) round($this->knots() / 5);

        return [intdiv($fives, 10), intdiv($fives % 10, 2), $fives % 2];
    }
}
