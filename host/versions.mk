# The one list of PHP versions that a host can be built for, oldest first; and those whose headers are installed.
KNOWN_PHP := 8.2 8.3 8.4 8.5
INSTALLED_PHP = $(foreach version,$(KNOWN_PHP),$(if $(shell command -v php-config$(version)),$(version)))
