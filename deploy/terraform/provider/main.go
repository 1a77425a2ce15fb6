// The Terraform provider of gtm.
package main

import (
	"context"
	"flag"
	"log"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"

	"terraform-provider-gtm/internal/provider"
)

// version is set when a release is built.
var version = "dev"

func main() {
	debug := flag.Bool("debug", false, "run for a debugger: print what Terraform needs to attach to this process")
	flag.Parse()
	options := providerserver.ServeOpts{Address: "registry.terraform.io/gtm/gtm", Debug: *debug, ProtocolVersion: 6}
	if err := providerserver.Serve(context.Background(), provider.New(version), options); err != nil {
		log.Fatal(err)
	}
}
