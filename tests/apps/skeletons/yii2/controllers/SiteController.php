<?php

declare(strict_types=1);

namespace app\controllers;

use Yii;
use yii\helpers\Html;
use yii\helpers\Url;
use yii\web\Controller;
use yii\web\Cookie;
use yii\web\HttpException;
use yii\web\Response;
use yii\web\UploadedFile;

final class SiteController extends Controller
{
    private static int $requests = 0;

    public function beforeAction($action): bool
    {
        $this->response->headers->set('X-Requests', (string) ++self::$requests);

        return parent::beforeAction($action);
    }

    public function actionHome(): string
    {
        return '<a href="'.Url::to(['site/person', 'name' => 'ada'], true).'">Ada</a> of '.Yii::$app->params['shop'];
    }

    public function actionPerson(string $name, string $page = ''): string
    {
        return "{$name} at /{$this->request->pathInfo} page {$page}";
    }

    public function actionForm(): string
    {
        return '<p id="sent">'.Html::encode(Yii::$app->session->get('sent', 'nothing')).'</p>'
            .Html::beginForm('/form', 'post', ['enctype' => 'multipart/form-data'])
            .'<input name="name"><input type="file" name="photo">'.Html::endForm();
    }

    public function actionSent(): Response
    {
        $photo = UploadedFile::getInstanceByName('photo');
        $seen = $photo?->error === UPLOAD_ERR_OK ? $photo->name.' '.sha1_file($photo->tempName) : 'no photo';
        Yii::$app->session->set('sent', $this->request->post('name').', '.$seen);

        return $this->redirect('/form');
    }

    public function actionVisits(): string
    {
        $session = Yii::$app->session;
        $session->set('visits', $session->get('visits', 0) + 1);

        return (string) $session->get('visits');
    }

    public function actionCookie(string $taste): string
    {
        $had = $this->request->cookies->getValue('taste', 'none');
        $this->response->cookies->add(new Cookie(['name' => 'taste', 'value' => $taste]));

        return "had {$had}";
    }

    public function actionFails(): never
    {
        throw new \RuntimeException('it fails');
    }

    public function actionExit(): never
    {
        echo 'left';
        exit;
    }

    public function actionError(): string
    {
        $error = Yii::$app->errorHandler->exception;

        return $error instanceof HttpException ? Html::encode($error->getMessage()) : 'An error of the server';
    }
}
