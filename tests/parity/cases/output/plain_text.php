no php tag at all
<?xml version="1.0"?>
