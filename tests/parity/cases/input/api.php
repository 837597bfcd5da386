<?php
header('Content-Type: application/json');
try {
    $data = json_decode(file_get_contents('php://input'), true, 32, JSON_THROW_ON_ERROR);
    http_response_code(201);
    header('Location: /things/' . ($data['id'] ?? 0));
    echo json_encode(['received' => $data], JSON_PRETTY_PRINT);
} catch (JsonException $error) {
    http_response_code(422);
    echo json_encode(['error' => $error->getMessage()]);
}
