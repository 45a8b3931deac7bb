"""What the shop's shelves are named after: kinds of goods, makers, colours and sizes."""

# What it is, its type, and what it is tagged with.
GOODS = (
    ("Pull col rond en laine mérinos", "Pulls", ("femme", "hiver", "laine")),
    ("Chemise en lin lavé", "Chemises", ("homme", "été", "lin")),
    ("Marinière rayée", "T-shirts", ("mixte", "coton", "iconique")),
    ("Jean droit taille haute", "Pantalons", ("femme", "denim")),
    ("Robe midi fleurie", "Robes", ("femme", "été")),
    ("Trench imperméable", "Manteaux", ("mixte", "pluie")),
    ("Baskets en cuir", "Chaussures", ("mixte", "cuir")),
    ("Espadrilles tressées", "Chaussures", ("été", "fait-main")),
    ("Sac cabas en toile", "Sacs", ("accessoire", "coton")),
    ("Écharpe en alpaga", "Accessoires", ("hiver", "accessoire")),
    ("Bougie parfumée figuier", "Maison", ("maison", "cadeau")),
    ("Coffret de savons de Marseille", "Beauté", ("beauté", "cadeau")),
    ("Huile d'olive vierge extra", "Épicerie", ("épicerie", "bio")),
    ("Couteau pliant en olivier", "Cuisine", ("cuisine", "fait-main")),
    ("Cocotte en fonte émaillée", "Cuisine", ("cuisine", "maison")),
    ("Plaid en coton gaufré", "Maison", ("maison", "coton")),
)
MAKERS = (
    "Maison Lavigne",
    "Atelier Kerouan",
    "Les Filles du Port",
    "Bastide & Fils",
    "Côte Sauvage",
    "Petit Jour",
)
COLOURS = (
    "bleu nuit",
    "écru",
    "terracotta",
    "vert sauge",
    "moutarde",
    "noir",
    "bordeaux",
    "rose poudré",
)
SIZES = ("XS", "S", "M", "L", "XL", "XXL", "Unique", "Grand modèle")
SEASONS = ("nouveauté", "soldes", "permanent", "fin-de-série")
