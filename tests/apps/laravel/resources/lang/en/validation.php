<?php

return [
    'dimensions' => 'Your :attribute is too wide.',
    'email' => 'Your :attribute is no address.',
    'image' => 'Your :attribute is no image.',
    'max' => ['string' => 'Your :attribute is longer than :max letters.'],
    'required' => 'Your :attribute is missing.',
    'uploaded' => 'Your :attribute did not arrive.',
];
