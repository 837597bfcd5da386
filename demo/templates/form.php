<?php

declare(strict_types=1);

use Windbook\Beaufort;
use Windbook\Draft;
use Windbook\Photo;

/**
 * @var Windbook\View $this
 * @var string $token
 * @var Windbook\Draft $draft
 * @var array<string, string> $errors
 */

$chosen = $draft->beaufort() ?? Beaufort::GentleBreeze;
$first = array_key_first($errors);
// Ties a field to its error message for screen readers; the first wrong field takes the focus, which also scrolls to it.
$state = fn (string $field): string => isset($errors[$field])
    ? " aria-invalid=\"true\" aria-describedby=\"$field-error\"" . ($field === $first ? ' autofocus' : '')
    : '';
$error = fn (string $field): string => isset($errors[$field])
    ? "<p class=\"error\" id=\"$field-error\">" . $this->e($errors[$field]) . '</p>'
    : '';
?>
<form method="post" action="<?= $this->url('/entries') ?>" enctype="multipart/form-data" novalidate>
    <h2 id="sign-title">Sign the book</h2>
    <?php if ($errors !== []): ?>
    <p class="problem" role="alert"><?= $this->e($errors['form'] ?? 'Nearly there: please look at the fields marked below.') ?></p>
    <?php endif ?>
    <input type="hidden" name="token" value="<?= $this->e($token) ?>">
    <div class="field">
        <label for="name">Your name</label>
        <input id="name" name="name" value="<?= $this->e($draft->name) ?>" maxlength="<?= Draft::NAME_LENGTH ?>" autocomplete="name" required<?= $state('name') ?>>
        <?= $error('name') ?>
    </div>
    <div class="field">
        <label for="place">Where you stand <span>optional</span></label>
        <input id="place" name="place" value="<?= $this->e($draft->place) ?>" maxlength="<?= Draft::PLACE_LENGTH ?>"<?= $state('place') ?>>
        <?= $error('place') ?>
    </div>
    <div class="field">
        <label for="wind">The wind there</label>
        <select id="wind" name="wind"<?= $state('wind') ?>>
            <?php foreach (Beaufort::cases() as $wind): ?>
            <option value="<?= $wind->value ?>"<?= $wind === $chosen ? ' selected' : '' ?>><?= $wind->value ?> · <?= $this->e($wind->label()) ?></option>
            <?php endforeach ?>
        </select>
        <?= $error('wind') ?>
    </div>
    <div class="field">
        <label for="message">Your message</label>
        <textarea id="message" name="message" rows="5" maxlength="<?= Draft::MESSAGE_LENGTH ?>" required<?= $state('message') ?>><?= $this->e($draft->message) ?></textarea>
        <?= $error('message') ?>
    </div>
    <div class="field">
        <label for="photo">A picture <span>optional, up to 2 MB</span></label>
        <input id="photo" name="photo" type="file" accept="<?= implode(',', Photo::TYPES) ?>"<?= $state('photo') ?>>
        <?= $error('photo') ?>
    </div>
    <button class="button" type="submit">Let it fly</button>
</form>
