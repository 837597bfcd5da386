<?php

declare(strict_types=1);

return [
    'id' => 'shop',
    'basePath' => dirname(__DIR__),
    'bootstrap' => ['log'],
    'params' => ['shop' => getenv('SHOP_NAME')],
    'components' => [
        'request' => ['cookieValidationKey' => 'a key of the tests'],
        'errorHandler' => ['errorAction' => 'site/error'],
        'log' => ['targets' => [['class' => yii\log\FileTarget::class, 'levels' => ['error', 'warning']]]],
        'urlManager' => [
            'enablePrettyUrl' => true,
            'showScriptName' => false,
            'enableStrictParsing' => true,
            'rules' => [
                '' => 'site/home',
                'people/<name>' => 'site/person',
                'GET form' => 'site/form',
                'POST form' => 'site/sent',
                'cookie/<taste>' => 'site/cookie',
                '<action:visits|fails|exit>' => 'site/<action>',
            ],
        ],
    ],
];
