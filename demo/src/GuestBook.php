<?php

declare(strict_types=1);

namespace Windbook;

/** The entries: reads them, newest first, and adds new ones. */
final class GuestBook
{
    public const PER_PAGE = 6;

    private const SELECT = <<<'SQL'
        SELECT e.id, e.name, e.place, e.wind, e.message, e.written_at, e.photo_id, p.width, p.height
        FROM entries e LEFT JOIN photos p ON p.id = e.photo_id
        SQL;

    public function __construct(private readonly Database $database)
    {
    }

    public function count(): int
    {
        return (int) $this->database->query('SELECT count(*) FROM entries')->fetchColumn();
    }

    /** How many pages there are; an empty book has one. */
    public function pages(): int
    {
        return max(1, (int) ceil($this->count() / self::PER_PAGE));
    }

    /**
     * @param int $number from 1
     * @return list<Entry>
     */
    public function page(int $number): array
    {
        $rows = $this->database->query(
            self::SELECT . ' ORDER BY e.written_at DESC, e.id DESC LIMIT :limit OFFSET :offset',
            ['limit' => self::PER_PAGE, 'offset' => ($number - 1) * self::PER_PAGE],
        );

        return array_map($this->entry(...), $rows->fetchAll());
    }

    public function find(int $id): ?Entry
    {
        $row = $this->database->query(self::SELECT . ' WHERE e.id = :id', ['id' => $id])->fetch();

        return $row === false ? null : $this->entry($row);
    }

    public function photo(int $id): ?Photo
    {
        $row = $this->database->query('SELECT type, width, height, bytes FROM photos WHERE id = :id', ['id' => $id])->fetch();

        return $row === false ? null : new Photo($row['type'], $row['width'], $row['height'], $row['bytes']);
    }

    /**
     * @return int the new entry's number
     * @throws \LogicException when the draft has errors
     */
    public function add(Draft $draft, ?Photo $photo): int
    {
        if ($draft->errors() !== []) {
            throw new \LogicException('Only a draft without errors may be added.');
        }

        return $this->database->transaction(function () use ($draft, $photo): int {
            $this->database->query(
                'INSERT INTO entries (name, place, wind, message, photo_id, written_at)
                 VALUES (:name, :place, :wind, :message, :photo, :now)',
                [
                    'name' => $draft->name,
                    'place' => $draft->place,
                    'wind' => $draft->beaufort()->value,
                    'message' => $draft->message,
                    'photo' => $photo === null ? null : $this->addPhoto($photo),
                    'now' => time(),
                ],
            );

            return $this->database->lastInsertId();
        });
    }

    private function addPhoto(Photo $photo): int
    {
        $this->database->query(
            'INSERT INTO photos (type, width, height, bytes) VALUES (:type, :width, :height, cast(:bytes AS BLOB))',
            ['type' => $photo->type, 'width' => $photo->width, 'height' => $photo->height, 'bytes' => $photo->bytes],
        );

        return $this->database->lastInsertId();
    }

    /** @param array<string, int|string|null> $row */
    private function entry(array $row): Entry
    {
        return new Entry(
            id: $row['id'],
            name: $row['name'],
            place: $row['place'],
            wind: Beaufort::from($row['wind']),
            message: $row['message'],
            writtenAt: new \DateTimeImmutable('@' . $row['written_at']),
            photoId: $row['photo_id'],
            photoWidth: $row['width'],
            photoHeight: $row['height'],
        );
    }
}
