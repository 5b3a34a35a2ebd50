// Nothing is asked of any other host: no validator, no fonts, no fetched configuration.
SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#reference",
  deepLinking: true,
  displayOperationId: true,
  docExpansion: "list",
  defaultModelsExpandDepth: 0,
  filter: true,
  // A token stays in the page's memory and goes with it.
  persistAuthorization: false,
  queryConfigEnabled: false,
  syntaxHighlight: { activated: true, theme: "agate" },
  tryItOutEnabled: true,
  validatorUrl: null,
});
