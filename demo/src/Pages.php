<?php

declare(strict_types=1);

namespace Windbook;

/** What each address answers. One object per request. */
final class Pages
{
    public function __construct(
        private readonly Request $request,
        private readonly Session $session,
        private readonly GuestBook $book,
        private readonly View $view,
        private readonly Engine $engine,
    ) {
    }

    /** @throws HttpError for an address or a method that is not ours */
    public function respond(): Response
    {
        $path = $this->request->path;
        if ($path === '/entries') {
            return $this->request->method === 'POST' ? $this->sign() : throw HttpError::methodNotAllowed('POST');
        }

        $answer = match (true) {
            $path === '/' => $this->book(...),
            $path === '/engine' => $this->engine(...),
            $path === '/engine/fail' => $this->fail(...),
            preg_match('{^/entries/([1-9]\d{0,8})$}D', $path, $found) === 1 => fn () => $this->entry((int) $found[1]),
            preg_match('{^/photos/([1-9]\d{0,8})$}D', $path, $found) === 1 => fn () => $this->photo((int) $found[1]),
            default => throw HttpError::notFound(),
        };

        return $this->request->isRead() ? $answer() : throw HttpError::methodNotAllowed('GET', 'HEAD');
    }

    private function book(): Response
    {
        $number = $this->request->pageNumber();
        if ($number === null || $number > $this->book->pages()) {
            throw HttpError::notFound();
        }

        return new Response($this->bookPage($number, new Draft(), []));
    }

    /** Takes the form: on success redirects to the book, otherwise shows the form again with what was typed. */
    private function sign(): Response
    {
        if ($this->request->formWasDropped()) {
            throw new HttpError(413, 'Your entry was larger than we can take. Please choose a smaller picture.');
        }
        $draft = Draft::fromForm($this->request);
        if (!$this->session->accepts($this->request->field('token'))) {
            $errors = ['form' => 'Your session has ended in the meantime. Please send the form once more.'];

            return new Response($this->bookPage(1, $draft, $errors), 403);
        }

        $errors = $draft->errors();
        $file = $this->request->file('photo');
        $photo = null;
        try {
            $photo = $file === null ? null : Photo::fromUpload($file);
        } catch (\DomainException $error) {
            $errors['photo'] = $error->getMessage();
        }
        if ($errors !== []) {
            return new Response($this->bookPage(1, $draft, $errors), 422);
        }

        $id = $this->book->add($draft, $photo);
        $this->session->flash("Thank you, $draft->name. Your entry is in the book.");

        return Response::seeOther($this->request->base . "/#entry-$id");
    }

    private function entry(int $id): Response
    {
        $entry = $this->book->find($id) ?? throw HttpError::notFound();

        return new Response($this->view->page('single', [
            'title' => "$entry->name, " . lcfirst($entry->wind->label()),
            'entry' => $entry,
        ]));
    }

    /** A picture never changes under its number, so browsers may keep it. */
    private function photo(int $id): Response
    {
        $caching = ['ETag' => "\"photo-$id\"", 'Cache-Control' => 'public, max-age=31536000, immutable'];
        $photo = $this->book->photo($id) ?? throw HttpError::notFound();
        if (str_contains($this->request->ifNoneMatch(), $caching['ETag'])) {
            return new Response('', 304, $caching);
        }

        return new Response($photo->bytes, 200, $caching + [
            'Content-Type' => $photo->type,
            'Content-Length' => (string) strlen($photo->bytes),
        ]);
    }

    private function engine(): Response
    {
        return new Response($this->view->page('engine', [
            'title' => 'The engine room',
            'mode' => $this->engine->mode,
            'facts' => $this->engine->facts(),
        ]));
    }

    /** Breaks on purpose: the visitor gets an error page, the log the reason, and a worker goes on. */
    private function fail(): never
    {
        throw new \RuntimeException('This error was asked for, on /engine/fail.');
    }

    /** @param array<string, string> $errors field => message */
    private function bookPage(int $number, Draft $draft, array $errors): string
    {
        return $this->view->page('book', [
            'title' => 'Windbook',
            'flash' => $this->session->takeFlash(),
            'token' => $this->session->token(),
            'entries' => $this->book->page($number),
            'count' => $this->book->count(),
            'page' => $number,
            'pages' => $this->book->pages(),
            'draft' => $draft,
            'errors' => $errors,
        ]);
    }
}
