from gtm.cli.app import main

main()
