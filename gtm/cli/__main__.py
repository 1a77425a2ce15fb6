from gtm.cli.main import main

main()
