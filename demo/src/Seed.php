<?php

declare(strict_types=1);

namespace Windbook;

/** The entries a new guest book starts with, so that there is something to read. */
final class Seed
{
    public static function fill(\PDO $connection): void
    {
        $insert = $connection->prepare(
            'INSERT INTO entries (name, place, wind, message, written_at) VALUES (?, ?, ?, ?, ?)',
        );
        $now = time();
        foreach (array_reverse(self::entries()) as [$hoursAgo, $name, $place, $wind, $message]) {
            $insert->execute([$name, $place, $wind->value, $message, $now - (int) ($hoursAgo * 3600)]);
        }
    }

    /** @return list<array{float, string, string, Beaufort, string}> hours ago, name, place, wind, message; newest first */
    private static function entries(): array
    {
        return [
            [0.3, 'Mio Tanabe', 'Cape Erimo, Hokkaidō', Beaufort::StrongGale,
                "They built a museum of wind here because there was nothing else to put in it. Today I could lean on the air like on a friend's shoulder. 疾風!"],
            [2.2, 'Oisín Byrne', 'Inis Mór', Beaufort::Gale,
                "The ferry is off, the pub is on. Three of us at the window taking bets on the bins.\n\nMine is winning."],
            [5.5, 'Greta Lindqvist', 'Skagen', Beaufort::FreshBreeze,
                'Stood with one foot in each sea. My hat now belongs to both of them.'],
            [21, 'Tomás Arrieta', 'El Chaltén', Beaufort::Storm,
                'Four days in the tent waiting for the wind to drop. On the fifth we stopped calling it wind and gave it a name.'],
            [27, 'Ama Owusu', 'Accra', Beaufort::GentleBreeze,
                'Harmattan morning: the whole city the colour of tea with milk. My grandmother says it carries the desert\'s letters.'],
            [46, 'Ruben de Wit', 'Kinderdijk', Beaufort::ModerateBreeze,
                'The miller let me hold the brake rope. A thousand kilos of wood going round above you, very politely.'],
            [52, 'Salma Haddad', 'Essaouira', Beaufort::NearGale,
                'Sand in the camera, sand in the couscous, sand in this keyboard. Would come again tomorrow.'],
            [76, 'Kit', 'a balcony', Beaufort::LightAir,
                'Just enough to move the basil.'],
            [99, 'Nadia & Jo', 'Col de la Loze', Beaufort::StrongBreeze,
                "Headwind up. Turned around at the top for the reward.\nHeadwind down."],
            [140, 'Henrik Aas', 'Bergen', Beaufort::FreshBreeze,
                'Sideways rain again. Umbrellas bloom from every bin in town.'],
            [171, 'Prof. Ines Calado', 'Serra da Estrela', Beaufort::ViolentStorm,
                'The anemometer stopped reporting at 11:42. We are treating this as a data point.'],
            [215, 'Lupe', 'Oaxaca', Beaufort::LightBreeze,
                'My kite went up on the first try. Papá says it was the kite, I say it was me.'],
            [290, 'Aroha Parata', 'Pōneke / Wellington', Beaufort::NearGale,
                'You can tell who is new here: they still try to do something about their hair.'],
            [338, 'Yusuf', 'Bosphorus, the 7:15 ferry', Beaufort::ModerateBreeze,
                'The gulls do not fly today. They stand still in the air, next to the railing, and wait for simit.'],
            [412, 'Maud', 'the doldrums', Beaufort::Calm,
                'Nothing. Eleven days of nothing. I have learned to play the harmonica and so, I am afraid, has everybody else.'],
            [500, 'The keepers', 'Windbook', Beaufort::GentleBreeze,
                'First page of a new book. Tell us who you are, where you stand, and what the wind is doing there.'],
        ];
    }
}
