<?php

declare(strict_types=1);

namespace App\Controller;

use App\Form\UploadType;
use Symfony\Bundle\FrameworkBundle\Controller\AbstractController;
use Symfony\Component\HttpFoundation\BinaryFileResponse;
use Symfony\Component\HttpFoundation\File\UploadedFile;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpFoundation\Response;
use Symfony\Component\HttpFoundation\ResponseHeaderBag;

/** Takes files and gives them back. */
final class FileController extends AbstractController
{
    public function __construct(private string $uploads)
    {
    }

    public function upload(Request $request): Response
    {
        $form = $this->createForm(UploadType::class);
        $form->handleRequest($request);
        if ($form->isSubmitted() && $form->isValid()) {
            /** @var UploadedFile $file */
            $file = $form->get('file')->getData();
            $name = bin2hex(random_bytes(8)).'.'.($file->guessExtension() ?? 'bin');
            $file->move($this->uploads, $name);

            return $this->redirectToRoute('file', ['name' => $name]);
        }

        return $this->render('upload.html.twig', ['form' => $form->createView()], new Response(status: $form->isSubmitted() ? 422 : 200));
    }

    public function show(Request $request, string $name): Response
    {
        if (!is_file("$this->uploads/$name")) {
            throw $this->createNotFoundException();
        }
        $response = new BinaryFileResponse("$this->uploads/$name", autoEtag: true);
        if ($request->query->has('download')) {
            $response->setContentDisposition(ResponseHeaderBag::DISPOSITION_ATTACHMENT, 'größe.bin', 'size.bin');
        }
        $response->isNotModified($request);

        return $response;
    }
}
