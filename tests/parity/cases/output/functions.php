<?php
echo "echo\n";
print "print\n";
printf("%s %05d\n", 'printf', 42);
vprintf("%s\n", ['vprintf']);
print_r(['print_r' => true]);
var_dump(1.5, null, 'text');
$output = fopen('php://output', 'w');
fwrite($output, "php://output\n");
fprintf($output, "%s\n", 'fprintf');
fputcsv($output, ['a', 'b c', 'd"e']);
fclose($output);
file_put_contents('php://output', "file_put_contents\n");
?>
inline <?= 'short echo' ?>

<?php
echo <<<TEXT
heredoc

TEXT;
