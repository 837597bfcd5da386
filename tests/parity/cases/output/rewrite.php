<?php
output_add_rewrite_var('token', 'a b&c');
echo '<a href="/x?y=1">x</a> <a href="http://other.test/">other</a> <form action="/f" method="post"><input name="i"></form>';
if (isset($_GET['reset'])) {
    output_reset_rewrite_vars();
}
