<?php
echo json_encode(['post' => $_POST, 'files' => $_FILES, 'file_uploads' => ini_get('file_uploads')]), "\n";
